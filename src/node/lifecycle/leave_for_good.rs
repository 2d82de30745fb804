//! `leave --for-good`: waits until the others have agreed to continue without this node, and have
//! confirmed it; or until that takes too long, and then the node stays a member.

use std::time::Duration;

use super::stop::StopReason;
use crate::engine::changes::{BeginRetirement, CancelRetirement};
use crate::engine::delete::{RetireError, Retirement};
use crate::engine::{Engine, TICK_INTERVAL_MS};
use crate::model::count::count_of;
use crate::model::ids::{Millis, NodeName};
use crate::node::link::Links;
use crate::rt;
use crate::server::LeaveRefusal;

/// An agreement cannot be undone: beyond the given time, the node waits this long for its own disk,
/// and for the others to confirm.
const SETTLING_MS: Millis = 5_000;

/// Takes the node out of the Delete group's list, then asks for its end. Blocks: for a thread that may.
/// It takes `patience_ms` at most, and [`SETTLING_MS`] more once all have agreed.
///
/// # Errors
/// [`LeaveRefusal`] says whether the node is still a member.
pub(in crate::node) fn leave_for_good(
    links: &Links,
    patience_ms: Millis,
) -> Result<(), LeaveRefusal> {
    let begun = links.hub.handle(BeginRetirement, rt::now());
    begun.map_err(|error| match error {
        RetireError::NotReady => LeaveRefusal::NotReady(error.to_string()),
        RetireError::Alone => LeaveRefusal::Alone(error.to_string()),
    })?;
    let deadline = rt::now().saturating_add(patience_ms);
    loop {
        let now = rt::now();
        let is_late = now >= deadline;
        let is_too_late = now >= deadline.saturating_add(SETTLING_MS);
        match links.hub.read(Engine::retirement) {
            Some(Retirement::Done) => break,
            Some(Retirement::Agreeing { away, .. }) if is_late => {
                if links.hub.handle(CancelRetirement, now) {
                    return Err(LeaveRefusal::NotAgreed(not_agreed(&away, patience_ms)));
                }
                if is_too_late {
                    return Err(LeaveRefusal::Unsettled(String::from(
                        "all members have agreed, but this node's disk does not confirm it, so the node \
                         still runs and takes no changes; see `status`, and when the disk works, run \
                         `leave --for-good` again",
                    )));
                }
            }
            Some(Retirement::Spreading { unconfirmed, unshared }) if is_too_late => {
                return Err(LeaveRefusal::Unsettled(unsettled(&unconfirmed, unshared)));
            }
            Some(Retirement::Agreeing { .. } | Retirement::Spreading { .. }) => {}
            // Another request for the same has given up.
            None => return Err(LeaveRefusal::NotAgreed(not_agreed(&[], patience_ms))),
        }
        if links.stop.is_requested() {
            return Err(LeaveRefusal::NotReady(String::from("this node is ending already")));
        }
        rt::block_on(rt::sleep(Duration::from_millis(TICK_INTERVAL_MS)));
    }
    if let Some(keys) = &links.keys {
        keys.leave_for_good();
    }
    links.stop.request(StopReason::LeftForGood);
    Ok(())
}

fn names(names: &[NodeName]) -> String {
    names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

fn not_agreed(away: &[NodeName], patience_ms: Millis) -> String {
    let seconds = patience_ms.div_ceil(1_000);
    let stays = "the node stays a member and takes changes again; nothing was changed";
    if away.is_empty() {
        return format!(
            "the members of the Delete group have not agreed within {seconds} s (nodes may be catching \
             up): {stays}; try again, with a longer --timeout"
        );
    }
    format!(
        "members of the Delete group that must agree are away: {}; {stays}. Bring them back, or, if that \
         cannot be, run `distkv-node members forget` for them; then try again",
        names(away)
    )
}

fn unsettled(unconfirmed: &[NodeName], unshared: u64) -> String {
    let mut open = Vec::new();
    if unshared > 0 {
        open.push(format!(
            "{} on no other node",
            count_of(unshared, "change of this node is", "changes of this node are")
        ));
    }
    if !unconfirmed.is_empty() {
        open.push(match unconfirmed {
            [name] => format!("{name} has not said that it knows that"),
            _ => format!("{} have not said that they know that", names(unconfirmed)),
        });
    }
    if open.is_empty() {
        open.push(String::from("no other member is linked"));
    }
    format!(
        "all members have agreed to go on without this node, but {}; the node still runs and takes no \
         changes; run `leave --for-good` again when its links work",
        open.join(" and ")
    )
}
