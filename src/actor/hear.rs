//! What a member makes of a ping that it hears.

use rand::RngExt;

use super::contest::Claim;
use super::reunion::{self, MeetingNews};
use super::{Actor, ActorEvent, ActorOutput, Occasion, Role};
use crate::model::ids::{Millis, NodeName};
use crate::model::ping::{ConfigVersion, Meeting, Ping};

impl Actor {
    /// A ping or a greeting has arrived. It may say anything: of another group, or under this
    /// member's own name, it is ignored; names beyond what fits, or given twice, and a turn or a
    /// configuration out of range are passed over.
    pub fn on_ping(&mut self, ping: &Ping, now: Millis, out: &mut Vec<ActorOutput>) {
        if ping.group != self.group || ping.sender == self.me {
            return;
        }
        // What was set here before must count before what comes now.
        self.settle(now, out);
        self.hear_config(ping.config, now, out);
        self.roster.on_heard(&ping.sender, now);
        if let Some(theirs) = Claim::from_ping(ping) {
            let heard = Heard {
                meetings: reunion::recent(ping, &theirs),
                sender: &ping.sender,
                claim: theirs,
            };
            self.hear_claim(heard, now, out);
        }
        self.settle(now, out);
    }

    fn hear_config(&mut self, config: ConfigVersion, now: Millis, out: &mut Vec<ActorOutput>) {
        if config == self.config {
            if matches!(self.say_at, Some((_, Occasion::Config))) {
                self.say_at = None; // somebody else has told it
            }
        } else if config < self.config {
            let gap_ms = self.config.gap_ms;
            let quiet_until = self.said_at.map_or(0, |at| at.saturating_add(self.config.cycle_ms));
            let at = now.saturating_add(self.rng.random_range(0..gap_ms)).max(quiet_until);
            self.say_by(at, Occasion::Config);
        } else if config.check().is_ok() {
            self.follow_config(config);
            out.push(ActorOutput::Event(ActorEvent::ConfigChanged(config)));
        }
    }

    fn hear_claim(&mut self, heard: Heard<'_>, now: Millis, out: &mut Vec<ActorOutput>) {
        let Some(ours) = self.claim.clone() else {
            for meeting in &heard.meetings {
                self.reunions.note_sides(meeting);
            }
            return self.follow(heard.claim, now, out);
        };
        if heard.is_by_holder() && heard.claim.turn() >= ours.turn() {
            self.roster.on_took_part(heard.sender);
        }
        let is_strange = !heard.claim.shares_with(self.roster.names());
        if is_strange && !self.reunions.knows(&heard.claim) && !self.reunions.is_full() {
            self.meet(&ours, &heard, now, out);
        } else {
            self.hear_meetings(&ours, &heard, out);
            self.contest(&ours, heard, now, out);
        }
    }

    /// Two histories that share nothing become one.
    fn meet(&mut self, ours: &Claim, heard: &Heard<'_>, now: Millis, out: &mut Vec<ActorOutput>) {
        let list_len = self.config.list_len;
        let is_recovery = ours.is_past() && self.roster.len() > 0 && heard.claim.is_past();
        let joint = match is_recovery {
            true => ours.merged(&heard.claim, list_len),
            false => ours.joined(&heard.claim),
        };
        let Some(joint) = joint else {
            return self.forget(now, out);
        };
        self.reunions.on_leap(joint.turn());
        for meeting in &heard.meetings {
            self.reunions.note_sides(meeting);
        }
        self.roster.on_back(heard.claim.history());
        if is_recovery {
            let ours: Vec<_> = self.roster.names().cloned().collect();
            let theirs: Vec<_> = heard.claim.history().take(list_len).cloned().collect();
            let sides = [ours.clone(), theirs.clone()];
            self.reunions.remember(Meeting { turn: joint.turn(), sides });
            self.report_recover(ours, theirs, out);
            self.tell_meeting(now);
        }
        if joint != *ours {
            self.follow(joint, now, out);
        }
    }

    /// Others must hear of a meeting, also those who hear only this side. Those on the list speak
    /// first; the others only if they do not.
    fn tell_meeting(&mut self, now: Millis) {
        let gap_ms = self.config.gap_ms;
        let wait_ms = match self.roster.place(&self.me) {
            Some(_) => self.rng.random_range(0..gap_ms),
            None => gap_ms * 2 + self.rng.random_range(0..gap_ms),
        };
        self.say_by(now.saturating_add(wait_ms), Occasion::Meeting);
    }

    /// What is told of meetings may concern this member's side, or a side that it met before, or
    /// one that another of these meetings tells it of.
    fn hear_meetings(&mut self, ours: &Claim, heard: &Heard<'_>, out: &mut Vec<ActorOutput>) {
        let turn = ours.turn().max(heard.claim.turn());
        let mut unclear = heard.meetings.clone();
        // Each round clears up one at least, or is the last one.
        for _ in 0..heard.meetings.len() {
            let before = unclear.len();
            unclear.retain(|meeting| !self.hear_meeting(ours, meeting, turn, out));
            if unclear.len() == before {
                break;
            }
        }
    }

    /// Whether anything is known of that meeting now.
    fn hear_meeting(
        &mut self,
        ours: &Claim,
        meeting: &Meeting,
        turn: u64,
        out: &mut Vec<ActorOutput>,
    ) -> bool {
        match self.reunions.decide_news(meeting, turn, ours) {
            MeetingNews::Met { ours: our_side, theirs } if ours.is_past() => {
                let sides = [our_side.clone(), theirs.clone()];
                self.roster.on_back(&theirs);
                self.reunions.remember(Meeting { turn: meeting.turn, sides });
                self.report_recover(our_side, theirs, out);
            }
            MeetingNews::Met { .. } | MeetingNews::Known => {
                self.reunions.note_sides(meeting);
            }
            MeetingNews::Nothing => return false,
        }
        true
    }

    fn report_recover(
        &self,
        ours: Vec<NodeName>,
        theirs: Vec<NodeName>,
        out: &mut Vec<ActorOutput>,
    ) {
        let priority = ours.iter().position(|name| *name == self.me);
        out.push(ActorOutput::Event(ActorEvent::Recover { priority, ours, theirs }));
    }

    /// Of two claims the greater one counts.
    fn contest(&mut self, ours: &Claim, heard: Heard<'_>, now: Millis, out: &mut Vec<ActorOutput>) {
        let theirs = &heard.claim;
        if theirs > ours {
            let is_next = theirs.turn() == ours.turn() + 1;
            let waited = ours.value().is_some() || theirs.value().is_none();
            if is_next && waited {
                self.roster.on_turn(theirs.holder(), self.config.list_len);
            }
            self.follow(heard.claim, now, out);
        } else if theirs == ours {
            let is_told = matches!(self.say_at, Some((_, Occasion::Meeting)));
            if is_told && !heard.meetings.is_empty() {
                self.say_at = None;
            }
        } else if heard.is_by_holder() && *ours.holder() == self.me && self.role == Role::Active {
            let quiet_until = self.said_at.map_or(now, |at| at.saturating_add(self.config.gap_ms));
            self.say_by(now.max(quiet_until), Occasion::Contest);
        }
    }
}

/// A ping that claims something.
struct Heard<'a> {
    claim: Claim,
    sender: &'a NodeName,
    meetings: Vec<&'a Meeting>,
}

impl Heard<'_> {
    /// Whether the sender makes the claim itself.
    fn is_by_holder(&self) -> bool {
        self.claim.holder() == self.sender
    }
}
