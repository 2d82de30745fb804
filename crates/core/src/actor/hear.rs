//! What a member makes of a ping that it hears.

use rand::RngExt;

use super::contest::Claim;
use super::pacing;
use super::reunion::{self, MEETING_TURNS, MeetingNews};
use super::{Actor, ActorEvent, ActorOutput, Occasion, Role};
use crate::model::ids::{Millis, NodeName};
use crate::model::ping::{ConfigVersion, Meeting, Ping};

impl Actor {
    /// A ping or a greeting has arrived. It may say anything: of another group, or under this
    /// member's own name, it is ignored; names beyond what fits, or given twice, and a turn or a
    /// configuration out of range are passed over.
    pub(crate) fn on_ping(&mut self, ping: &Ping, now: Millis, out: &mut Vec<ActorOutput>) {
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
            // It has nothing to recover; but others may hear of it only here.
            for meeting in heard.meetings {
                self.reunions.remember(meeting, now, self.telling_ms());
            }
            return self.follow(heard.claim, now, out);
        };
        self.reunions.on_time(now);
        if heard.is_by_holder() && heard.claim.turn() >= ours.turn() {
            self.roster.on_took_part(heard.sender);
        }
        let is_strange = !heard.claim.shares_with(self.roster.names());
        if is_strange && !self.reunions.knows(&heard.claim) && !self.reunions.is_full() {
            self.meet(&ours, heard, now, out);
        } else {
            self.hear_meetings(&ours, &heard, now, out);
            let are_pasts = ours.is_past() && self.roster.len() > 0 && heard.claim.is_past();
            if is_strange && are_pasts && heard.claim > ours {
                // Met before, but this list gives way only now. Where the others could not hear it
                // until now, they learn here that it was there.
                self.remember_meeting(&heard.claim, heard.claim.turn(), now);
            }
            self.contest(&ours, heard, now, out);
        }
    }

    /// Two histories that share nothing become one.
    fn meet(&mut self, ours: &Claim, heard: Heard<'_>, now: Millis, out: &mut Vec<ActorOutput>) {
        let list_len = self.config.list_len;
        let is_recovery = ours.is_past() && self.roster.len() > 0 && heard.claim.is_past();
        let joint = match is_recovery {
            true => ours.merged(&heard.claim, list_len),
            false => ours.joined(&heard.claim),
        };
        let Some(joint) = joint else {
            return self.forget(now, out);
        };
        let telling_ms = self.telling_ms();
        self.reunions.on_leap(joint.turn() - ours.turn());
        for meeting in heard.meetings {
            let turn = meeting.turn + (joint.turn() - heard.claim.turn());
            self.reunions.remember(Meeting { turn, ..meeting }, now, telling_ms);
        }
        self.roster.on_back(heard.claim.history());
        if is_recovery {
            let [ours, theirs] = self.remember_meeting(&heard.claim, joint.turn(), now);
            self.report_recover(ours, theirs, out);
        }
        if joint != *ours {
            self.follow(joint, now, out);
        }
    }

    /// The list has met another history: others must hear of it, also those that hear only this
    /// side. Those on the list speak first; the others only if they do not.
    fn remember_meeting(&mut self, theirs: &Claim, turn: u64, now: Millis) -> [Vec<NodeName>; 2] {
        let ours: Vec<_> = self.roster.names().cloned().collect();
        let sides = [ours, theirs.history().take(self.config.list_len).cloned().collect()];
        let meeting = Meeting { turn, sides: sides.clone() };
        self.reunions.remember(meeting, now, self.telling_ms());
        let gap_ms = self.config.gap_ms;
        let wait_ms = match self.roster.place(&self.me) {
            Some(_) => self.rng.random_range(0..gap_ms),
            None => gap_ms * 2 + self.rng.random_range(0..gap_ms),
        };
        self.say_by(now.saturating_add(wait_ms), Occasion::Meeting);
        sides
    }

    /// A reported meeting may concern this member's side, or a side that it met before, or one that
    /// another of these meetings reports.
    fn hear_meetings(
        &mut self,
        ours: &Claim,
        heard: &Heard<'_>,
        now: Millis,
        out: &mut Vec<ActorOutput>,
    ) {
        let turn = ours.turn().max(heard.claim.turn());
        let telling_ms = self.telling_ms();
        let mut unclear: Vec<_> = heard.meetings.iter().collect();
        // Each round clears up one at least, or is the last one.
        for _ in 0..heard.meetings.len() {
            let before = unclear.len();
            unclear.retain(|meeting| {
                let news = self.reunions.decide_news(meeting, turn, ours, now);
                let is_unclear = news == MeetingNews::Nothing;
                match news {
                    MeetingNews::Met { ours: our_side, theirs } => {
                        self.reunions.remember((*meeting).clone(), now, telling_ms);
                        if ours.is_past() {
                            self.roster.on_back(&theirs);
                            self.report_recover(our_side, theirs, out);
                        }
                    }
                    MeetingNews::Known => {
                        self.reunions.pass_on((*meeting).clone(), now, telling_ms);
                    }
                    MeetingNews::Nothing => {}
                }
                is_unclear
            });
            if unclear.len() == before {
                break;
            }
        }
    }

    /// For how long a meeting can be reported.
    fn telling_ms(&self) -> Millis {
        MEETING_TURNS * pacing::turn_ms_max(&self.config)
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
    meetings: Vec<Meeting>,
}

impl Heard<'_> {
    /// Whether the sender makes the claim itself.
    fn is_by_holder(&self) -> bool {
        self.claim.holder() == self.sender
    }
}
