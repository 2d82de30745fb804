//go:build unix

package distkv

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// How Connect says why there is no client: which node it was, and what is not a node's doing.

// withoutFiles does something while this process can open no further file.
func withoutFiles(t *testing.T, do func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

func TestConnectingWithoutAFreeFileIsToldAtOnceAndAsThat(t *testing.T) {
	seeds := startScripted(t, &scripted{name: "s1"}, &scripted{name: "s2"})
	before := footprint()
	for _, seeds := range [][]string{seeds, {"127.0.0.1:1"}, {"localhost:1", seeds[1]}} {
		var err error
		started := time.Now()
		withoutFiles(t, func() { _, err = Connect(t.Context(), Config{Seeds: seeds, ConnectDeadline: 2 * patient}) })
		failed := wantError(t, err, ErrUnavailable)
		if took := time.Since(started); took > patient || !errors.Is(err, syscall.EMFILE) || failed.Fate != NotDone || failed.Node != "" {
			t.Errorf("%v: %v, %+v", seeds, took, failed)
		}
		if text := err.Error(); !strings.Contains(text, "no free file descriptor") || strings.Contains(text, "no node could be reached") {
			t.Error(text)
		}
	}
	nothingLeft(t, before)
	connect(t, Config{Seeds: startScripted(t, &scripted{name: "s1"})}) // Those of before could accept nobody either.
}

// A name is looked up by a file or a socket; such errors keep the text alone.
func TestANameThatCannotBeLookedUpWithoutAFreeFileIsNotUnknown(t *testing.T) {
	for text, isOut := range map[string]bool{"dial udp 10.0.0.1:53: socket: " + syscall.EMFILE.Error(): true, "no such host": false} {
		err := &net.OpError{Op: "dial", Err: &net.DNSError{Name: "n1", Err: text}}
		config := Config{Seeds: []string{"n1"}, ConnectDeadline: 200 * time.Millisecond}
		var isTried atomic.Bool
		config.dial = func(context.Context, string, string) (net.Conn, error) {
			isTried.Store(true)
			return nil, err
		}
		until(t, func() bool { // A slow machine may use up the time before anything is tried.
			_, failed := Connect(t.Context(), config)
			wantError(t, failed, ErrUnavailable)
			return isTried.Load() && errors.Is(failed, syscall.EMFILE) == isOut
		})
	}
	if err := (outOfFiles{syscall.ENFILE}); !errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EMFILE) || !isOutOfFiles(err) {
		t.Error("it is the machine that has none")
	}
}

// All connections of a client are lost, and it can make no other.
func TestACallWithoutAFreeFileSaysSo(t *testing.T) {
	client, one, two, path := pair(t, quick(), nil)
	allLive(t, client, 2)
	isAtBoth(t, client) // It may be connecting to one of them, for the table of shards.
	withoutFiles(t, func() {
		one.hangUpWith("")
		two.hangUpWith("")
		until(t, func() bool { return client.Stats().Pool.Connections == 0 })
		until(t, func() bool { // A slow machine may use up the time before anything is tried.
			_, err := client.Get(t.Context(), path, &GetOptions{Timeout: 300 * time.Millisecond})
			wantError(t, err, ErrUnavailable)
			return errors.Is(err, syscall.EMFILE) && strings.Contains(err.Error(), syscall.EMFILE.Error())
		})
	})
}

func TestARefusalNamesTheNodeThatRefused(t *testing.T) {
	for range 8 {
		one, two := &scripted{name: "s1", asksLogin: true}, &scripted{name: "s2", asksLogin: true}
		one.refuses, two.refuses = "auth_failed", "auth_failed"
		config := Config{Seeds: startScripted(t, one, two), Login: PasswordLogin("ann", "x"), ConnectDeadline: time.Minute}
		_, err := Connect(t.Context(), config)
		failed := wantError(t, err, ErrDenied)
		if strings.Count(err.Error(), failed.Node) != 2 || strings.Count(err.Error(), "127.0.0.1:") != 2 {
			t.Error("it is of one node:", err)
		}
	}
	// The first seed cannot be reached.
	two := &scripted{name: "s2", asksLogin: true, refuses: "auth_failed"}
	seeds := append([]string{"127.0.0.1:1"}, startScripted(t, two)...)
	until(t, func() bool { // A slow machine may use up the time before the second one has said anything.
		_, err := Connect(t.Context(), Config{Seeds: seeds, Login: PasswordLogin("ann", "x"), ConnectDeadline: 300 * time.Millisecond})
		failed := wantError(t, err, ErrUnavailable)
		return failed.Node == seeds[1] && strings.Contains(err.Error(), "cannot get into "+seeds[1])
	})
}
