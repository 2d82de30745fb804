package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"time"

	distkv "distkv.example/client"
)

// configOf is what an order says about how a client is to behave.
func configOf(told any) distkv.Config {
	var config distkv.Config
	fields, _ := told.(object)
	times := map[string]*time.Duration{
		"initial_delay": &config.Retry.InitialDelay, "delay_max": &config.Retry.DelayMax,
		"total_deadline": &config.Retry.TotalDeadline, "try_deadline": &config.Retry.TryDeadline,
		"idle_close": &config.Pool.IdleClose, "failure_memory": &config.Pool.FailureMemory,
		"failure_memory_max": &config.Pool.FailureMemoryMax, "probe_after": &config.Pool.ProbeAfter,
		"probe_timeout": &config.Pool.ProbeTimeout, "connect_timeout": &config.Pool.ConnectTimeout,
		"connect_deadline": &config.ConnectDeadline, "own_write_patience": &config.OwnWritePatience,
		"watch_patience": &config.WatchPatience, "shard_table_age": &config.ShardTableAge,
		"first_view_timeout": &config.Topology.FirstViewTimeout,
	}
	numbers := map[string]*int{
		"attempts_max": &config.Retry.AttemptsMax, "factor": &config.Retry.Factor,
		"connections_per_node": &config.Pool.ConnectionsPerNode, "busy_at": &config.Pool.BusyAt,
		"window": &config.Pool.Window, "own_writes_max": &config.OwnWritesMax,
		"watch_paths_max": &config.WatchPathsMax, "watch_bytes_max": &config.WatchBytesMax,
	}
	for name, value := range fields {
		switch {
		case times[name] != nil:
			*times[name] = seconds(value)
		case numbers[name] != nil:
			*numbers[name] = int(number(value))
		case name == "only_seeds":
			config.Topology.OnlySeeds = value == true
		case name == "write_ids":
			config.NoWriteIDs = value != true
		case name == "read_mode":
			config.ReadMode = distkv.ReadMode(text(value, ""))
		case name == "login":
			login := value.(object)
			config.Login = &distkv.Login{User: text(login["user"], ""), Secret: text(login["secret"], ""), Method: text(login["method"], "")}
		case name == "tls":
			// A file, or the hash.
			config.TLS = &distkv.TLS{CAFile: text(value, "")}
			if hash, err := hex.DecodeString(text(value, "")); err == nil {
				config.TLS = &distkv.TLS{CAHash: hash}
			}
		case name == "network":
			config.Network = text(value, "")
		case name == "ticket":
			config.Ticket = text(value, "")
		default:
			fmt.Fprintln(os.Stderr, "unknown setting", name)
			os.Exit(1)
		}
	}
	return config
}
