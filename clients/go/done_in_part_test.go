package distkv

import (
	"errors"
	"testing"
)

// What is told of a call of which a node says that it has made a part (`made`), whatever its word for the rest is.

func madeReply(code string) fields { return with(errorReply(code), "made", true) }

func TestATreeThatIsDeletedInPartIsNotSaidToBeLeft(t *testing.T) {
	for code, kind := range map[string]error{"denied": ErrDenied, "of_a_later_version": ErrRefused, "memory_full": ErrRefused} {
		for _, options := range []*DeleteTreeOptions{nil, {AgainIfUnknown: true}} {
			client, one, two, path := pair(t, quick(), always(madeReply(code)))
			_, err := client.DeleteTree(t.Context(), path, options)
			failed := wantError(t, err, kind)
			if failed.Fate != Unknown || failed.Code != code || failed.Node != "s1" || !errors.Is(err, ErrFateUnknown) {
				t.Errorf("%s: %+v", code, failed)
			}
			// What is final is so everywhere: it is not tried again.
			if tries := len(one.actions("delete_tree")) + len(two.actions("delete_tree")); tries != 1 {
				t.Error(code, tries)
			}
			one.mu.Lock()
			one.script = always(errorReply(code))
			one.mu.Unlock()
			_, err = client.DeleteTree(t.Context(), path, options)
			if failed := wantError(t, err, kind); failed.Fate != NotDone || errors.Is(err, ErrFateUnknown) {
				t.Errorf("%s: %+v", code, failed)
			}
		}
	}
}

// An earlier try has deleted a part, and then a node refuses the rest before it deletes anything.
func TestWhatAnEarlierTryHasDeletedIsNotForgotten(t *testing.T) {
	for _, code := range []string{"too_many", "storage_failed", "too_slow"} {
		client, _, two, path := pair(t, quick(), always(madeReply(code)))
		two.mu.Lock()
		two.script = always(errorReply("denied"))
		two.mu.Unlock()
		_, err := client.DeleteTree(t.Context(), path, &DeleteTreeOptions{AgainIfUnknown: true})
		if failed := wantError(t, err, ErrDenied); failed.Fate != Unknown || failed.Node != "s2" || !errors.Is(err, ErrFateUnknown) {
			t.Errorf("%s: %+v", code, failed)
		}
	}
}

func TestAnOperationOfABatchThatIsMadeInPartSaysSo(t *testing.T) {
	client, _, _, path := pair(t, quick(), always(fields{"results": []any{madeReply("denied"), errorReply("denied")}}))
	replies, err := client.Batch().Put(path, 1, nil).Put(path, 2, nil).Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, fate := range []Fate{Unknown, NotDone} {
		failed := wantError(t, replies[i].Err, ErrDenied)
		if failed.Fate != fate || errors.Is(failed, ErrFateUnknown) != (fate == Unknown) {
			t.Errorf("%d: %+v", i, failed)
		}
	}
}

// A read changes nothing, whatever a node says.
func TestAReadIsNeverMadeInPart(t *testing.T) {
	client, _, _, path := pair(t, quick(), always(madeReply("denied")))
	_, err := client.Get(t.Context(), path, nil)
	if failed := wantError(t, err, ErrDenied); failed.Fate != NotDone || errors.Is(err, ErrFateUnknown) {
		t.Errorf("%+v", failed)
	}
}
