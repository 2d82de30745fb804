// A counter with several writers, by versions as preconditions: go run ./examples/shared_counter [SEED…].
//
// Exact as long as all writers reach the same node: not over a split, nor when a node freezes for about two seconds or is
// killed, so that some of them go on at another one. Then two nodes can each take a next number; one is lost, and reported as
// a conflict.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	distkv "distkv.example/client"
)

const writers, turns = 4, 25

func addOne(ctx context.Context, client *distkv.Client, path distkv.Path) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		next, options := 1, &distkv.PutOptions{IfNew: true}
		entry, err := client.Entry(ctx, path, nil)
		if err == nil && !entry.Deleted {
			count, err := distkv.As[int](entry.Value)
			if err != nil {
				return err
			}
			next, options = count+1, &distkv.PutOptions{IfVersion: entry.Version}
		} else if err != nil && !errors.Is(err, distkv.ErrNotFound) {
			return err
		}
		_, err = client.Put(ctx, path, next, options)
		// Of unknown fate, an earlier try of this call may have counted: to go on could count twice.
		if !errors.Is(err, distkv.ErrPrecondition) || errors.Is(err, distkv.ErrFateUnknown) {
			return err
		}
		// Somebody was there first, or the node that was asked has not heard of that version yet, as at the beginning of a
		// split. The pauses grow, and differ, so that those who were refused together do not come back together.
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return fmt.Errorf("%v was not counted in time: %w", path, err)
		}
	}
}

func main() {
	ctx := context.Background()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: os.Args[1:]})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	path := distkv.MustPath("counter")
	if _, err := client.Delete(ctx, path, nil); err != nil {
		log.Fatal(err)
	}
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range turns {
				if err := addOne(ctx, client, path); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	writing.Wait()
	count, err := distkv.Get[int](ctx, client, path, nil)
	fmt.Println(writers, "writers counted to", count)
	if err != nil || count != writers*turns {
		log.Fatal("that is wrong: ", err)
	}
}
