package distkv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	distkv "distkv.example/client"
)

// seeds are those of three nodes that the tests have started.
func seeds() []string {
	found, err := distkv.SharedSeeds()
	if err != nil {
		log.Fatal(err)
	}
	return found
}

type Lamp struct {
	On    bool `msgpack:"on"`
	Level int  `msgpack:"level,omitempty"`
}

func Example() {
	ctx := context.Background()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: seeds()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	path := distkv.MustPath("example.lamp")
	if _, err := client.Put(ctx, path, Lamp{On: true}, &distkv.PutOptions{Copies: 1}); err != nil {
		log.Fatal(err)
	}
	lamp, err := distkv.Get[Lamp](ctx, client, path, nil)
	fmt.Printf("%+v %v\n", lamp, err)
	// Output: {On:true Level:0} <nil>
}

func ExampleClient_Put() {
	ctx := context.Background()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: seeds()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	path := distkv.MustPath("example.counter")
	first, _ := client.Put(ctx, path, 1, nil)
	_, err = client.Put(ctx, path, 2, &distkv.PutOptions{IfVersion: first.Version})
	fmt.Println(err)
	_, err = client.Put(ctx, path, 3, &distkv.PutOptions{IfVersion: first.Version})
	var failed *distkv.Error
	if errors.Is(err, distkv.ErrPrecondition) && errors.As(err, &failed) {
		fmt.Println(failed.Code, failed.Fate)
	}
	// Output:
	// <nil>
	// chain_mismatch not_done
}

func ExampleClient_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: seeds()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	_, _ = client.Put(ctx, distkv.MustPath("hall.lamp"), "on", nil)
	for event, err := range client.Watch(ctx, distkv.MustPath("hall"), nil) {
		if err != nil {
			log.Fatal(err)
		}
		switch e := event.(type) {
		case distkv.Change:
			fmt.Println(e.Path, e.Value, e.Deleted)
			if e.Deleted {
				return // leaving the loop ends the watch
			}
		case distkv.UpToDate: // all that was there has come
			_, _ = client.Delete(ctx, distkv.MustPath("hall.lamp"), nil)
		case distkv.Resumed: // at another node, where it was
		case distkv.Restarted: // forget everything; the whole present state follows
		}
	}
	// Output:
	// hall.lamp on false
	// hall.lamp (none) true
}

func ExampleClient_Tree() {
	ctx := context.Background()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: seeds()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	above := distkv.MustPath("example tree")
	batch := client.Batch()
	for number := range 3 {
		batch.Put(above.MustJoin(number), number*number, nil)
	}
	if _, err := batch.Run(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for entry, err := range client.Tree(ctx, above, nil) {
		fmt.Println(entry.Path, entry.Value, err)
	}
	// Output:
	// example:_tree:0 0 <nil>
	// example:_tree:1 1 <nil>
	// example:_tree:2 4 <nil>
}
