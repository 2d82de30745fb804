package distkv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// What logs and observers are told of errors: neither paths nor values, which nodes' own words name.

const words = `Data is "HIV positive", not "secret", at patients.jane`

func inWords(code string) fields {
	reply := with(errorReply(code), "error", words)
	if code == "" {
		delete(reply, "code")
	}
	return reply
}

// writingObserver writes down all that it is told, as logs do.
type writingObserver struct{ log *slog.Logger }

func (o *writingObserver) CallBegins(ctx context.Context, action string) context.Context {
	o.log.Info("begins", "action", action)
	return ctx
}

func (o *writingObserver) TryBegins(_ context.Context, node string, attempt int) {
	o.log.Info("tries", "node", node, "attempt", attempt)
}

func (o *writingObserver) TryFailed(_ context.Context, node string, attempt int, class string, err error) {
	o.log.Info("fails", "node", node, "attempt", attempt, "class", class, "err", err)
	o.write(err)
	panic(fmt.Errorf("an observer's own: %w", err))
}

func (o *writingObserver) CallEnds(_ context.Context, end CallEnd) {
	o.log.Info("ends", "end", end)
	o.write(end.Err)
}

// write writes all of an error that anybody can find.
func (o *writingObserver) write(err error) {
	o.log.Info("error", "all", fmt.Sprintf("%v %+v %#v", err, err, err))
	switch wraps := err.(type) {
	case interface{ Unwrap() error }:
		o.write(wraps.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range wraps.Unwrap() {
			o.write(one)
		}
	}
}

func TestNoPathAndNoValueIsLoggedOrToldToObservers(t *testing.T) {
	for _, code := range []string{"data_mismatch", "denied", "storage_failed", "internal", "unknown_fate", "", words} {
		var log syncBuffer
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		config := quick()
		config.Retry.AttemptsMax = 2
		config.Logger, config.Observer = logger, &writingObserver{logger}
		one := &scripted{name: "s1", script: always(inWords(code)), shards: inWords(code)}
		config.Seeds = startScripted(t, one)
		client := connect(t, config)
		path := MustPath("patients.jane")
		_, put := client.Put(t.Context(), path, "HIV positive", &PutOptions{IfValue: "secret"})
		if !strings.Contains(fmt.Sprint(put), words) {
			t.Error("who calls is told all:", put)
		}
		_, err := client.Get(t.Context(), path, nil)
		_, err2 := client.Get(t.Context(), path, &GetOptions{Read: Freshest})
		_, err3 := client.DeleteTree(t.Context(), path, nil)
		_, err4 := client.ConflictsList(t.Context(), path)
		for _, one := range []error{err, err2, err3, err4} {
			if one == nil {
				t.Fatal(code, err, err2, err3, err4)
			}
		}
		listened := make(chan struct{})
		must[func()](t)(client.OnTopologyChange(func(TopologyChange) {
			defer close(listened)
			panic(put)
		}))
		one.tell(func() { one.states["s1"] = "joining" })
		one.tell(func() { one.isEmpty = true })
		<-listened
		until(t, func() bool {
			written := log.String()
			return strings.Contains(written, "could not be fetched") && strings.Contains(written, "a listener to topology changes")
		})
		for _, secret := range []string{"HIV", "secret", "patients", "jane"} {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, secret) {
					t.Fatal(code, line)
				}
			}
		}
		if !strings.Contains(log.String(), `an observer failed at a failed try`) {
			t.Error(log.String())
		}
	}
}

// What they are told is still of use.
func TestObserversAreToldWhichErrorItWas(t *testing.T) {
	failed := refusal(&tryError{kind: tryServer, code: "denied", text: words}, Unknown, "s1", 2)
	told := withoutWords(failed)
	var shown *Error
	if !errors.As(told, &shown) || shown.Code != "denied" || shown.Node != "s1" || shown.Attempts != 2 || shown.Fate != Unknown ||
		!errors.Is(told, ErrDenied) || !errors.Is(told, ErrFateUnknown) {
		t.Errorf("%+v", told)
	}
	if text := told.Error(); text != "distkv: denied (at s1, 2 tries, may have been done)" {
		t.Error(text)
	}
	late := &Error{Code: "unavailable", text: words, kind: ErrUnavailable, Attempts: 1,
		cause: errors.Join(&tryError{kind: tryTimedOut, text: "no answer from s1 in time"}, context.DeadlineExceeded)}
	if told := withoutWords(late); !errors.Is(told, context.DeadlineExceeded) || !errors.Is(told, ErrUnavailable) ||
		told.Error() != "distkv: unavailable (1 try)" {
		t.Error(told)
	}
	for err, text := range map[*tryError]string{
		{kind: tryServer, text: words, code: "not_ready"}: "the node's answer is an error (not_ready)",
		{kind: tryServer, text: words}:                    "the node's answer is an error",
		{kind: tryTimedOut, text: "no answer in time"}:    "no answer in time",
	} {
		if told := withoutWords(err).Error(); told != text {
			t.Error(told)
		}
	}
	client := connect(t, Config{Seeds: startScripted(t, &scripted{name: "s1"})})
	client.pool.config.Pool.ConnectTimeout = time.Minute
	_, refused := client.pool.get(t.Context(), address{"127.0.0.1", 1}, never)
	if text := withoutWords(refused).Error(); !strings.Contains(text, "connection refused") {
		t.Error(text)
	}
	if withoutWords(nil) != nil {
		t.Error("nothing is none")
	}
}
