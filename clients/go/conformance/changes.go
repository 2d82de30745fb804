package main

import (
	"slices"
	"sync"

	distkv "distkv.example/client"
)

// changes are what a listener was told.
type changes struct {
	mu  sync.Mutex
	all []distkv.TopologyChange
}

func (c *changes) add(change distkv.TopologyChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, change)
}

func (c *changes) shown() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := []any{}
	for _, change := range c.all {
		added, dead, moved := []string{}, []string{}, []string{}
		for _, node := range change.Added {
			added = append(added, node.Name)
		}
		for _, one := range change.Changed {
			if !one.After.IsLive() {
				dead = append(dead, one.After.Name)
			}
		}
		for _, move := range change.Moved {
			if move.Before != "" && !slices.Contains(moved, move.Before) {
				moved = append(moved, move.Before)
			}
		}
		slices.Sort(moved)
		found = append(found, object{"epochs": change.Epoch - change.PreviousEpoch, "added": added, "dead": dead, "moved": moved})
	}
	return found
}
