package distkv

import (
	"strings"
	"testing"
)

func TestDepthsThatAreNoneAreRefused(t *testing.T) {
	client := sharedClient(t)
	for _, depths := range [][2]int{{-1, 0}, {0, -2}, {-1, -1}, {1, -7}} {
		options := &TreeOptions{MinDepth: depths[0], MaxDepth: depths[1]}
		_, err := client.TreeList(t.Context(), base(), options)
		if failed := wantError(t, err, ErrUsage); !strings.Contains(err.Error(), "Depth must be") || failed.Attempts != 0 {
			t.Error(depths, err)
		}
		count := 0
		for _, err := range client.Tree(t.Context(), base(), options) {
			wantError(t, err, ErrUsage)
			count++
		}
		if count != 1 {
			t.Error(depths, count)
		}
		_, err = client.OpenWatch(t.Context(), base(), &WatchOptions{MinDepth: depths[0], MaxDepth: depths[1]})
		wantError(t, err, ErrUsage)
	}
	if _, err := client.TreeList(t.Context(), base(), &TreeOptions{MaxDepth: -1}); err != nil {
		t.Error(err)
	}
}

func TestAListenerThatCannotBeCalledIsRefused(t *testing.T) {
	stop, err := sharedClient(t).OnTopologyChange(nil)
	if wantError(t, err, ErrUsage); stop != nil {
		t.Error("there is something to stop")
	}
}
