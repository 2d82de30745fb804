// Command conformance is the Go client for the scenarios of clients/conformance: lines of JSON in, lines of JSON out. Built
// with the tag distkv_planted it breaks the rule that DISTKV_PLANTED names.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	distkv "distkv.example/client"
)

type object = map[string]any

type driver struct {
	clients map[string]*distkv.Client
	watches map[string]*distkv.Watch
	changes map[string]*changes
	storms  map[string]*storm
	// sockets and goroutines that were there before the first client; -1: there was none yet.
	sockets, goroutines int
}

func main() {
	d := driver{map[string]*distkv.Client{}, map[string]*distkv.Watch{}, map[string]*changes{}, map[string]*storm{}, -1, 0}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		answer, err := json.Marshal(d.answer(line))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(answer))
	}
	for _, client := range d.clients {
		closed, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.Close(closed)
	}
}

func (d *driver) answer(line []byte) object {
	var order object
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found, err := d.obey(context.Background(), order)
	if err != nil {
		return object{"error": failure(err)}
	}
	return object{"ok": found}
}

func failure(err error) object {
	told := object{"class": classOf(err), "code": nil, "fate": "not_done", "attempts": 0, "node": nil}
	var failed *distkv.Error
	if errors.As(err, &failed) {
		told["fate"], told["attempts"] = failed.Fate.String(), failed.Attempts
		if failed.Code != "" {
			told["code"] = failed.Code
		}
		if failed.Node != "" {
			told["node"] = failed.Node
		}
	}
	return told
}

func classOf(err error) string {
	for _, one := range []struct {
		name string
		kind error
	}{
		{"KeyNotFound", distkv.ErrNotFound}, {"Precondition", distkv.ErrPrecondition}, {"Refused", distkv.ErrRefused},
		{"Unavailable", distkv.ErrUnavailable}, {"FateUnknown", distkv.ErrFateUnknown}, {"NoMajority", distkv.ErrNoMajority},
		{"BadValue", distkv.ErrBadValue}, {"Usage", distkv.ErrUsage}, {"Closed", distkv.ErrClosed},
	} {
		if errors.Is(err, one.kind) {
			return one.name
		}
	}
	return "Other: " + err.Error()
}

func (d *driver) obey(ctx context.Context, order object) (any, error) {
	name := text(order["client"], "a")
	if order["do"] == "left" {
		return object{"sockets": sockets() - d.sockets, "tasks": runtime.NumGoroutine() - d.goroutines}, nil
	}
	if order["do"] == "connect" {
		if d.sockets < 0 {
			d.sockets, d.goroutines = sockets(), runtime.NumGoroutine()
		}
		config := configOf(order["config"])
		for _, seed := range order["seeds"].([]any) {
			config.Seeds = append(config.Seeds, seed.(string))
		}
		client, err := distkv.Connect(ctx, config)
		if err == nil {
			d.clients[name] = client
		}
		return object{}, err
	}
	client := d.clients[name]
	if order["do"] == "close" {
		delete(d.clients, name)
		delete(d.watches, name)
		return object{}, client.Close(ctx)
	}
	path, err := distkv.ParsePath(text(order["path"], ":"))
	if err != nil {
		return nil, err
	}
	switch order["do"] {
	case "preferred":
		if node := client.Preferred(path); node != "" {
			return node, nil
		}
		return nil, nil
	case "get":
		options := &distkv.GetOptions{Read: distkv.ReadMode(text(order["read"], "")), Timeout: seconds(order["timeout"])}
		value, err := client.Get(ctx, path, options)
		if err != nil {
			return nil, err
		}
		return object{"value": shown(value)}, nil
	case "get_raw":
		value, err := client.Get(ctx, path, nil)
		return object{"hex": hex.EncodeToString(value)}, err
	case "entry":
		entry, err := client.Entry(ctx, path, nil)
		if errors.Is(err, distkv.ErrNotFound) {
			return nil, nil
		}
		return entryOf(entry), err
	case "put", "put_raw", "delete":
		return d.write(ctx, client, path, order)
	case "tree":
		found := []any{}
		for entry, err := range client.Tree(ctx, path, nil) {
			if err != nil {
				return nil, err
			}
			found = append(found, []any{entry.Path.String(), shown(entry.Value)})
		}
		return found, nil
	case "children":
		names, err := client.Children(ctx, path)
		for i, name := range names {
			names[i] = plain(name)
		}
		return names, err
	case "batch":
		return batch(ctx, client, order["ops"].([]any))
	case "watch":
		if d.watches[name], err = client.OpenWatch(ctx, path, nil); err != nil {
			return nil, err
		}
		return object{}, nil
	case "next":
		return next(ctx, d.watches[name])
	case "collect":
		return collect(ctx, d.watches[name], int(number(order["count"])), seconds(order["patience"]))
	case "puts":
		for value := 1; value <= int(number(order["count"])); value++ {
			if _, err := client.Put(ctx, path, value, nil); err != nil {
				return nil, err
			}
		}
		return object{}, nil
	case "gets":
		var good atomic.Int64
		var calls sync.WaitGroup
		for range int(number(order["count"])) {
			calls.Go(func() {
				if _, err := client.Get(ctx, path, &distkv.GetOptions{Timeout: seconds(order["timeout"])}); err == nil {
					good.Add(1)
				}
			})
		}
		calls.Wait()
		return object{"good": good.Load()}, nil
	case "put_bytes":
		written, err := client.Put(ctx, path, make([]byte, int(number(order["size"]))), nil)
		return writtenOf(written), err
	case "get_bytes":
		value, err := distkv.Get[[]byte](ctx, client, path, nil)
		return object{"size": len(value)}, err
	case "prefer":
		return object{}, client.PreferShard(ctx, path.Shard(), text(order["node"], ""))
	case "refresh":
		return object{}, client.RefreshShards(ctx)
	case "listen":
		told := &changes{}
		d.changes[name] = told
		_, err := client.OnTopologyChange(told.add)
		return object{}, err
	case "changes":
		return d.changes[name].shown(), nil
	case "cancel_everywhere":
		return cancelEverywhere(ctx, client, path)
	case "storm_begin":
		d.storms[name], err = beginStorm(ctx, client, order)
		return object{}, err
	case "storm_end":
		return d.storms[name].end(ctx)
	case "unwatch":
		d.watches[name].Close()
		delete(d.watches, name)
		return object{}, nil
	case "view":
		view, nodes, live := client.ClusterView(), object{}, []string{}
		for _, node := range view.Nodes {
			nodes[node.Name] = node.IsLive()
			if node.IsLive() {
				live = append(live, node.Name)
			}
		}
		slices.Sort(live)
		return object{"epoch": view.Epoch, "nodes": nodes, "live": live}, nil
	case "stats":
		return client.Stats(), nil
	}
	return nil, fmt.Errorf("unknown order %v", order["do"])
}

func (d *driver) write(ctx context.Context, client *distkv.Client, path distkv.Path, order object) (any, error) {
	var options distkv.PutOptions
	var err error
	if version := text(order["if_version"], ""); version != "" {
		if options.IfVersion, err = distkv.ParseVersion(version); err != nil {
			return nil, err
		}
	}
	if value, isSet := order["if_value"]; isSet {
		options.IfValue = valueOf(value)
		if value == nil {
			options.IfValue = distkv.Nil
		}
	}
	options.IfNew, options.Idempotent = order["if_new"] == true, order["idempotent"] == true
	options.Copies, options.Timeout = int(number(order["copies"])), seconds(order["timeout"])
	if id := text(order["write_id"], ""); id != "" {
		options.WriteID = distkv.WriteIDOf(id)
	}
	if order["no_id"] == true {
		options.WriteID = distkv.NoWriteID
	}
	var written distkv.Written
	switch order["do"] {
	case "delete":
		written, err = client.Delete(ctx, path, &distkv.DeleteOptions{IfVersion: options.IfVersion, IfValue: options.IfValue,
			WriteID: options.WriteID, Copies: options.Copies, Timeout: options.Timeout})
	case "put_raw":
		data, wrong := hex.DecodeString(text(order["hex"], ""))
		if wrong != nil {
			return nil, wrong
		}
		written, err = client.Put(ctx, path, distkv.Value(data), nil)
	default:
		written, err = client.Put(ctx, path, valueOf(order["value"]), &options)
	}
	return writtenOf(written), err
}

func batch(ctx context.Context, client *distkv.Client, ops []any) (any, error) {
	b := client.Batch()
	for _, one := range ops {
		op := one.(object)
		path, err := distkv.ParsePath(text(op["path"], ":"))
		if err != nil {
			return nil, err
		}
		switch op["do"] {
		case "put":
			b.Put(path, valueOf(op["value"]), &distkv.PutOptions{IfNew: op["if_new"] == true})
		case "get":
			b.Get(path)
		case "delete":
			b.Delete(path, nil)
		}
	}
	replies, err := b.Run(ctx, nil)
	if err != nil {
		return nil, err
	}
	found := []any{}
	for i, reply := range replies {
		var failed *distkv.Error
		switch {
		case errors.As(reply.Err, &failed):
			found = append(found, object{"code": failed.Code, "fate": failed.Fate.String()})
		case ops[i].(object)["do"] == "get":
			found = append(found, entryOf(reply.Entry))
		default:
			found = append(found, writtenOf(reply.Written))
		}
	}
	return found, nil
}

func next(ctx context.Context, watch *distkv.Watch) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	event, err := watch.Next(ctx)
	switch e := event.(type) {
	case distkv.Change:
		return object{"event": "change", "path": e.Path.String(), "value": shown(e.Value), "deleted": e.Deleted}, nil
	case distkv.UpToDate:
		return object{"event": "uptodate"}, nil
	case distkv.Resumed:
		return object{"event": "resumed"}, nil
	case distkv.Restarted:
		return object{"event": "restarted"}, nil
	}
	return nil, err
}

// collect is the values of so many changes; it gives up waiting again and again.
func collect(ctx context.Context, watch *distkv.Watch, count int, patience time.Duration) (any, error) {
	seen := []any{}
	for len(seen) < count {
		soon, cancel := context.WithTimeout(ctx, patience)
		event, err := watch.Next(soon)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		if change, ok := event.(distkv.Change); ok {
			seen = append(seen, shown(change.Value))
		}
	}
	return seen, nil
}

func entryOf(entry distkv.Entry) object {
	return object{"value": shown(entry.Value), "deleted": entry.Deleted, "version": versionOf(entry.Version)}
}

func writtenOf(written distkv.Written) object {
	return object{"changed": written.Changed, "repeated": written.Repeated.String(), "node": written.Node,
		"attempts": written.Attempts, "version": versionOf(written.Version)}
}

func versionOf(version distkv.Version) any {
	if version.IsZero() {
		return nil
	}
	return version.String()
}

// shown is a value as JSON.
func shown(value distkv.Value) any {
	if value == nil {
		return nil
	}
	found, err := value.Any()
	if err != nil {
		return "bad: " + err.Error()
	}
	return plain(found)
}

// plain keeps floats floats.
func plain(value any) any {
	switch v := value.(type) {
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return json.RawMessage(text)
	case []any:
		for i, item := range v {
			v[i] = plain(item)
		}
	case object:
		for name, item := range v {
			v[name] = plain(item)
		}
	}
	return value
}

// valueOf is what JSON says as a value.
func valueOf(told any) any {
	switch v := told.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		float, _ := v.Float64()
		return float
	case []any:
		for i, item := range v {
			v[i] = valueOf(item)
		}
	case object:
		for name, item := range v {
			v[name] = valueOf(item)
		}
	}
	return told
}

func text(told any, without string) string {
	if found, ok := told.(string); ok {
		return found
	}
	return without
}

func number(told any) float64 {
	found, _ := told.(json.Number)
	float, _ := found.Float64()
	return float
}

func seconds(told any) time.Duration { return time.Duration(number(told) * float64(time.Second)) }
