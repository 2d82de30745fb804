//go:build unix

// A watch that survives a killed node: go run ./examples/watch_resume starts three nodes, and kills the one that sends.
package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	distkv "distkv.example/client"
	"distkv.example/client/distkvtest"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := distkvtest.StartCluster(3)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Stop()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: cluster.Seeds()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	for live(client) < 3 {
		time.Sleep(20 * time.Millisecond)
	}
	level := distkv.MustPath("sensor.level")
	watch, err := client.OpenWatch(ctx, level.Parent(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	var seen []int
	read := func(until int) {
		for !slices.Contains(seen, until) {
			event, err := watch.Next(ctx)
			if err != nil {
				log.Fatal(err)
			}
			switch e := event.(type) {
			case distkv.Change:
				number, err := distkv.As[int](e.Value)
				if err != nil {
					log.Fatal(err)
				}
				seen = append(seen, number)
			case distkv.Resumed:
				fmt.Println(e.Node, "goes on where it was")
			case distkv.Restarted:
				log.Fatal("it started over")
			}
		}
	}
	for number := range 10 {
		if _, err := client.Put(ctx, level, number, &distkv.PutOptions{Copies: 1}); err != nil {
			log.Fatal(err)
		}
		if number == 4 {
			read(4)
			fmt.Println(watch.Node(), "sends; it is killed now")
			cluster.ByName(watch.Node()).Kill()
		}
	}
	read(9)
	if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) {
		log.Fatal("not in order, or something twice: ", seen)
	}
	fmt.Println("seen:", seen)
}

func live(client *distkv.Client) int {
	count := 0
	for _, node := range client.ClusterView().Nodes {
		if node.IsLive() {
			count++
		}
	}
	return count
}
