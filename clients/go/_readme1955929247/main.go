package main

import (
	"context"
	"fmt"

	distkv "distkv.example/client"
)

func main() {
	ctx := context.Background()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: []string{"127.0.0.1:44815"}})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	client.Put(ctx, distkv.MustPath("hall.lamp"), "on", nil)
	lamps := map[distkv.Path]string{}
loop:
	for event, err := range client.Watch(ctx, distkv.MustPath("hall"), nil) {
		if err != nil {
			panic(err) // a node refused for good, or none lets the client in, the context ended, or the client was closed
		}
		switch e := event.(type) {
		case distkv.Change:
			if delete(lamps, e.Path); !e.Deleted {
				lamps[e.Path], _ = distkv.As[string](e.Value)
			}
		case distkv.Restarted:
			clear(lamps) // the whole present state follows; who uses the map meanwhile collects a new one until UpToDate
		case distkv.UpToDate:
			break loop // all that was there has come; leaving the loop ends the watch
		case distkv.Resumed: // at another node, where it was
		}
	}
	fmt.Println(lamps) // map[hall.lamp:on]
	client.DeleteTree(ctx, distkv.MustPath("hall"), nil)
}
