//! Tries of clients that lie in a buffer on their way, because a cable is pulled or a node stands still: they arrive long
//! after the client has made the write elsewhere, or has given it up, and has written more.

use crate::engine::{EngineWriteError, Outcome};
use crate::model::ids::Millis;
use crate::model::write_id::{WriteId, WritePlace};
use crate::replica::write::{WriteError, Written};
use crate::whole::clients::requests::{Wish, done_of};
use crate::whole::{Happening, Whole, note};

/// A try that is held up arrives after at least, and at most, so long.
const HELD_UP_MS: (Millis, Millis) = (20, 20_000);
/// In front of a process that stands still, it is looked at again so soon.
const LOOK_MS: Millis = 50;

impl Whole<'_> {
    /// A try is to reach the process that runs there now, if there is one: another one has another connection.
    pub(super) fn hold_up(&mut self, slot: usize, wish: Wish) {
        let Some(process) = self.slots[slot].process.as_ref().map(|process| process.number) else {
            return;
        };
        let after = self.aside.within(HELD_UP_MS.0, HELD_UP_MS.1);
        note!(self, "{wish}: held up on its way to {} for {after} ms", self.slots[slot].label);
        let at = self.now() + after;
        self.schedule.plan(at, Happening::Late { slot, process, wish });
    }

    /// It arrives. Nobody waits for its answer.
    pub(in crate::whole) fn on_late(&mut self, slot: usize, number: u64, wish: Wish) {
        if self.is_healing() {
            return;
        }
        let Some(process) = self.slots[slot].running(number) else { return };
        if process.frozen {
            let at = self.now() + LOOK_MS;
            self.schedule.plan(at, Happening::Late { slot, process: number, wish });
            return;
        }
        let log = process.log.as_ref();
        let is_refused = !process.is_ready()
            || log.is_some_and(|log| log.refusal().is_some() || !log.has_room())
            || process.hub.closing.is_closed();
        if is_refused {
            return;
        }
        let before = process.hub.read(|engine| {
            let entry = engine.get(wish.path.as_bytes())?;
            WritePlace::of(WriteId::of_extra(entry.extra())?)
        });
        let (outcome, _) = wish.make_at(&process.hub);
        self.stats.late += 1;
        let told = match &outcome {
            Some(Outcome::Written(written)) => written,
            Some(Outcome::Refused(EngineWriteError::Write(WriteError::GivenUp))) => {
                self.stats.given_up += 1;
                return self.touch(slot);
            }
            _ => return self.touch(slot),
        };
        self.judge_late(slot, number, &wish, told, before);
        self.touch(slot);
    }

    /// What was there is older than the late write, or of somebody else.
    fn judge_late(
        &mut self,
        slot: usize,
        number: u64,
        wish: &Wish,
        written: &Written,
        before: Option<WritePlace>,
    ) {
        let Some(process) = self.slots[slot].running(number) else { return };
        let done = process.hub.read(|engine| done_of(engine, written));
        if !written.is_made {
            return;
        }
        note!(self, "{wish}: made late at {}", self.slots[slot].label);
        let place = wish.id.and_then(WritePlace::of);
        if let (Some(place), Some(before)) = (place, before)
            && place.client == before.client
            && place.number < before.number
        {
            let detail = format!("{wish} at {}, on top of {before:?}", self.slots[slot].label);
            self.judge.fail("an old write of a client is put on top of a newer one", detail);
        }
        if let Some(done) = done {
            self.judge.note_made(wish.number, done.event);
        }
    }
}
