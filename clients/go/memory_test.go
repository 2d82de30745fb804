package distkv

import (
	"slices"
	"testing"
)

// What a watch remembers, one rule after the other: memory.go.

// remembered is a memory whose versions are all made by one node.
type remembered struct {
	*memory
	t *testing.T
}

func remembers(t *testing.T, pathsMax int) *remembered {
	return &remembered{newMemory(pathsMax, 100_000), t}
}

func (r *remembered) entry(tock int64, isDeleted bool) Entry {
	entry := Entry{Version: Version{tock, "a~1", tock}, Deleted: isDeleted}
	if !isDeleted {
		entry.Value = Value{1}
	}
	return entry
}

func (r *remembered) is(path string, tock int64, want look) {
	r.t.Helper()
	if found := r.look(MustPath(path), r.entry(tock, false), false); found != want {
		r.t.Errorf("%s at %d is %d, not %d", path, tock, found, want)
	}
}

func (r *remembered) isDeleted(path string, tock int64, want look) {
	r.t.Helper()
	if found := r.look(MustPath(path), r.entry(tock, true), false); found != want {
		r.t.Errorf("%s, deleted at %d, is %d, not %d", path, tock, found, want)
	}
}

func (r *remembered) tell(path string, tock int64, by toldBy) {
	r.onDelivered(MustPath(path), r.entry(tock, false), by)
}

func (r *remembered) tellDeleted(path string, tock int64, by toldBy) {
	r.onDelivered(MustPath(path), r.entry(tock, true), by)
}

// answerGone: the node, asked about the version of this tock, has nothing any more.
func (r *remembered) answerGone(path string, asked, tock int64, isNews bool) {
	r.t.Helper()
	if found := r.onGone(MustPath(path), r.entry(asked, false).Version, tock); found != isNews {
		r.t.Errorf("%s is gone at %d: news: %v", path, tock, found)
	}
}

func TestWhatIsOlderThanWhatTheNodeHoldsIsThePastOfItsStream(t *testing.T) {
	for name, holds := range map[string]func(*remembered){
		"it came by an answer": func(r *remembered) { r.tell("x", 30, byAnswer) },
		"it came in the feed":  func(r *remembered) { r.tell("x", 30, byFeed) },
		"it came again":        func(r *remembered) { r.is("x", 30, lookKnown) },
		"it was answered":      func(r *remembered) { r.onHeld(MustPath("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := remembers(t, 10)
			r.tell("x", 30, byFeed)
			r.beginFeed()
			// Another node has told it, and this one may not have heard of it.
			r.is("x", 20, lookOlder)
			holds(r)
			r.is("x", 20, lookKnown)
			r.isDeleted("x", 25, lookKnown)
			r.is("x", 30, lookKnown)
			r.is("x", 31, lookNew)
			r.beginFeed()
			r.is("x", 20, lookOlder)
		})
	}
}

func TestBehindTheAnswerThatNothingIsThereItsPastMayCome(t *testing.T) {
	r := remembers(t, 10)
	r.tell("x", 10, byFeed)
	r.beginFeed()
	r.answerGone("x", 10, 60, true)
	if paths := slices.Collect(r.notSeen()); len(paths) != 0 {
		t.Error(paths)
	}
	r.is("x", 9, lookKnown)
	r.is("x", 10, lookKnown)
	r.is("x", 20, lookDoubtful)
	r.answerGone("x", 20, 70, false)
	r.is("x", 20, lookKnown)
	r.is("x", 65, lookDoubtful)
	r.is("x", 71, lookNew)
	// Its deletion comes: it is not told again, and what comes then may be the past of another one.
	r.isDeleted("x", 30, lookKnown)
	r.is("x", 25, lookKnown)
	r.is("x", 31, lookDoubtful)
	r.is("x", 71, lookNew)
	r.tell("x", 71, byFeed)
	r.is("x", 65, lookKnown)
	r.is("x", 72, lookNew)
}

func TestOfALaterFeedAnAnswerSaysNothing(t *testing.T) {
	r := remembers(t, 10)
	r.tell("x", 10, byFeed)
	r.answerGone("x", 10, 60, true)
	r.tell("y", 10, byFeed)
	r.answerGone("y", 10, 60, true)
	r.isDeleted("y", 30, lookKnown)
	r.beginFeed()
	r.is("x", 10, lookNew)
	r.is("x", 20, lookNew)
	// Of the other one it is known which version it was that deleted it.
	r.is("y", 20, lookOlder)
	r.is("y", 31, lookNew)
	// A deletion that was delivered stays one when its node answers that nothing is left of it.
	r.tellDeleted("z", 40, byFeed)
	r.answerGone("z", 40, 60, false)
	r.is("z", 50, lookDoubtful)
	r.beginFeed()
	r.is("z", 39, lookOlder)
	r.isDeleted("z", 40, lookKnown)
}

func TestAnswersCountAsDeletionsInTheBounds(t *testing.T) {
	r := remembers(t, 4)
	for number := range int64(5) {
		path := PathOf("n", number)
		r.onDelivered(path, r.entry(number+1, false), byFeed)
		r.onGone(path, r.entry(number+1, false).Version, 50+number)
	}
	if !r.isWhole() || len(r.delivered) != 4 || len(r.deletions) != 4 || r.bytes != 4*(3+rememberedBytes) {
		t.Error(len(r.delivered), len(r.deletions), r.bytes)
	}
	// The first one was forgotten. What comes of it may be its past.
	path := PathOf("n", 0)
	for tock, want := range map[int64]look{2: lookDoubtful, 50: lookDoubtful, 51: lookNew} {
		for _, isResuming := range []bool{false, true} {
			if found := r.look(path, r.entry(tock, false), isResuming); found != want {
				t.Errorf("at %d, resuming %v: %d", tock, isResuming, found)
			}
		}
	}
	r.tell("a", 100, byFeed)
	if !r.isWhole() {
		t.Error("an answer has more room than a value")
	}
}

func TestADeletionThatIsForgottenLeavesDoubtWhereItDidNotComeInTheFeed(t *testing.T) {
	r := remembers(t, 2)
	for _, path := range []string{"a", "b", "c", "d"} {
		r.tellDeleted(path, 50, byFeed)
	}
	r.is("a", 40, lookNew) // Its deletion came before in the same feed.
	r.beginFeed()
	r.is("a", 40, lookDoubtful)
	r.is("a", 50, lookDoubtful)
	r.is("a", 51, lookNew)
	r.clear()
	r.is("a", 40, lookNew)
	r.beginFeed()
	for _, path := range []string{"a", "b", "c"} {
		r.tellDeleted(path, 50, byAnswer)
	}
	r.is("a", 40, lookDoubtful)
	r.is("a", 51, lookNew)
	// One of an earlier feed that is forgotten in this one.
	r = remembers(t, 2)
	r.tellDeleted("a", 50, byFeed)
	r.beginFeed()
	r.is("n", 40, lookNew)
	r.tellDeleted("b", 60, byFeed)
	r.tellDeleted("c", 61, byFeed)
	r.is("a", 40, lookDoubtful)
	r.is("n", 51, lookNew)
}
