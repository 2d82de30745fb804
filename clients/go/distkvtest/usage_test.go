//go:build unix

package distkvtest

import (
	"strings"
	"testing"
)

func TestClustersAndNodesThatThereAreNotAreErrors(t *testing.T) {
	for _, count := range []int{-1, 0} {
		if cluster, err := StartCluster(count); cluster != nil || err == nil || !strings.Contains(err.Error(), "at least one node") {
			t.Error(count, cluster, err)
		}
	}
	cluster, err := StartCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	for _, index := range []int{-1, 1, 99} {
		if err := cluster.Rejoin(index); err == nil || !strings.Contains(err.Error(), "there is no node") {
			t.Error(index, err)
		}
	}
}
