package distkv

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A node knows of no try but the one that it refuses.
func TestARefusalBehindATryThatMayHaveBeenMadePromisesNothingOfThatOne(t *testing.T) {
	words := "Data is 2, not 0, at a; nothing was changed; try again"
	for _, code := range []string{"data_mismatch", "denied", "read_by_nobody"} {
		for fate, first := range map[Fate]any{NotDone: nil, Unknown: madeReply("too_many"), Unconfirmed: errorReply("unknown_fate")} {
			refusal := always(with(errorReply(code), "error", words))
			if first != nil {
				refusal = onceThen(first, with(errorReply(code), "error", words))
			}
			config := quick()
			config.Seeds = startScripted(t, &scripted{name: "s1", script: refusal})
			client := connect(t, config)
			_, err := client.Put(t.Context(), PathOf("a"), 1, &PutOptions{IfValue: 0})
			failed := wantError(t, err, ErrRefused)
			told := map[Fate]string{
				NotDone: "distkv: " + words + " (at s1, 1 try)",
				Unknown: "distkv: an earlier try may have done it; the last one was refused: Data is 2, not 0, at a; try again " +
					"(at s1, 2 tries, may have been done)",
				Unconfirmed: "distkv: an earlier try may have done it; the last one was refused: Data is 2, not 0, at a; try again " +
					"(at s1, 2 tries, done but not confirmed)",
			}[fate]
			if failed.Code != code || failed.Fate != fate || err.Error() != told {
				t.Errorf("%v: %+v, %v", fate, failed, err)
			}
		}
	}
}

// What all nodes are asked at once (reads of the freshest, conflicts), against scripted nodes that refuse: a refusal that no
// other try can change is told at once, as by any call.

// three is three nodes that answer like this, a client whose tries have no end but an answer, and a context that ends if
// none comes for long.
func three(t *testing.T, scripts ...func(message) any) (*Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	var nodes []*scripted
	for i, name := range []string{"s1", "s2", "s3"} {
		nodes = append(nodes, &scripted{name: name, script: scripts[i]})
	}
	client := connect(t, Config{Seeds: startScripted(t, nodes...), Retry: RetryPolicy{TryDeadline: time.Hour}})
	allLive(t, client, 3)
	return client, ctx
}

func TestFreshestTellsARefusalAtOnce(t *testing.T) {
	version, denied, notReady := always(with(writtenReply, "value", "new")), always(errorReply("denied")), always(errorReply("not_ready"))
	nothing, bad, strange := always(fields{"value": nil}), always(errorReply("bad_request")), always(errorReply("from_the_future"))
	for name, row := range map[string]struct {
		scripts []func(message) any
		code    string
		kind    error
	}{
		"all deny":             {[]func(message) any{denied, denied, denied}, "denied", ErrDenied},
		"two deny":             {[]func(message) any{denied, version, denied}, "denied", ErrDenied},
		"one is silent":        {[]func(message) any{bad, always(silence{}), bad}, "bad_request", ErrRefused},
		"one cannot do it now": {[]func(message) any{notReady, version, denied}, "denied", ErrDenied},
		"an unknown word":      {[]func(message) any{notReady, strange, version}, "from_the_future", ErrRefused},
		"a majority has it":    {[]func(message) any{version, denied, version}, "", nil},
		"a majority lacks it":  {[]func(message) any{nothing, denied, nothing}, "", nil},
		"one can do it later": {[]func(message) any{notReady, onceThen(errorReply("not_ready"), with(writtenReply, "value", "new")), version},
			"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, ctx := three(t, row.scripts...)
			_, err := client.Entry(ctx, PathOf("a"), &GetOptions{Read: Freshest})
			if row.kind == nil {
				if err != nil && !errors.Is(err, ErrNotFound) {
					t.Error(err)
				}
				return
			}
			failed := wantError(t, err, row.kind)
			if failed.Code != row.code || failed.Attempts != 1 || failed.Node == "" || failed.Fate != NotDone {
				t.Errorf("%+v", failed)
			}
		})
	}
}

func TestConflictsTellWhyNoNodeListsThem(t *testing.T) {
	denied, notReady := always(errorReply("denied")), always(errorReply("not_ready"))
	empty := always(several{{"state": "start"}, {"state": "end"}})
	for name, row := range map[string]struct {
		scripts []func(message) any
		kind    error
	}{
		"all deny":          {[]func(message) any{denied, denied, denied}, ErrDenied},
		"one denies":        {[]func(message) any{notReady, denied, notReady}, ErrDenied},
		"none can do it":    {[]func(message) any{notReady, notReady, notReady}, ErrUnavailable},
		"one lists what is": {[]func(message) any{denied, notReady, empty}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, ctx := three(t, row.scripts...)
			found, err := client.ConflictsList(ctx, Path{})
			var last error
			for _, last = range client.Conflicts(ctx, Path{}) {
			}
			if row.kind == nil {
				if err != nil || last != nil || len(found.Missing) != 2 {
					t.Error(found, err, last)
				}
				return
			}
			for _, one := range []error{err, last} {
				if failed := wantError(t, one, row.kind); failed.Node == "" || failed.Attempts != 1 || failed.Fate != NotDone {
					t.Errorf("%+v", failed)
				}
			}
		})
	}
}
