//! Which nodes do not let this client in, or have no room for its stream: what all say that can be reached ends a call.

use smallvec::SmallVec;

use super::call::Place;
use crate::error::ClientError;
use crate::retry::ErrorClass;
use crate::topology::Target;

/// What the nodes said last that were tried in one call, or one search for a stream. One that does not let this client in may
/// be mistaken, or not have heard of a new user: it is as good as down. What all say that can be reached is final.
#[derive(Debug, Default)]
pub(in crate::smart) struct Refusals(SmallVec<[(Place, Said); 4]>);

#[derive(Debug)]
enum Said {
    /// It does not let this client in. Whether it had greeted: otherwise it may be anybody's.
    Refused { error: ClientError, greeted: bool, node: String },
    /// There is no room for another stream to it.
    NoRoom { error: ClientError, node: String },
    /// It makes the login wait.
    Waits { error: ClientError },
    /// It cannot be reached, or is of another network.
    Unreachable,
    /// It lets this client in, or may: it failed otherwise, or was slow.
    Hope,
}

impl Refusals {
    /// A try at this node has failed.
    pub(in crate::smart) fn on_failed(
        &mut self,
        at: &Target,
        error: &ClientError,
        class: ErrorClass,
    ) {
        let said = match error {
            ClientError::NoAccess { greeted, .. } => {
                let (error, node) = (error.clone(), at.name.clone());
                Said::Refused { error, greeted: *greeted, node }
            }
            ClientError::TooManyStreams { .. } => {
                Said::NoRoom { error: error.clone(), node: at.name.clone() }
            }
            // Without an answer in time there was a connection.
            _ if class == ErrorClass::TryDeadline => Said::Hope,
            // It is none of the nodes that could let this client in, or has not looked at its secret: it is no hope for the
            // others, which may be there again in a moment.
            ClientError::LoginWaits { .. } => Said::Waits { error: error.clone() },
            ClientError::OtherNetwork { .. }
            | ClientError::Resolve { .. }
            | ClientError::Connect { .. }
            | ClientError::NoDescriptor { .. }
            | ClientError::Lost { .. } => Said::Unreachable,
            _ => Said::Hope,
        };
        self.0.retain(|(other, _)| !other.is_of(at));
        self.0.push((Place::of(at), said));
    }

    /// If none of these nodes may let this client in, the error to end with and the node that it is from: each has refused it, or cannot be reached, and
    /// one has refused it after its greeting. One without a greeting may be another network's, at a stray address: that
    /// counts only where all refuse.
    pub(in crate::smart) fn verdict<'t>(
        &self,
        targets: impl IntoIterator<Item = &'t Target>,
    ) -> Option<(String, ClientError)> {
        let (mut met, mut unmet, mut all_refuse) = (None, None, true);
        for target in targets {
            match &self.0.iter().find(|(other, _)| other.is_of(target))?.1 {
                Said::Refused { error, greeted: true, node } => met = Some((node, error)),
                Said::Refused { error, greeted: false, node } => unmet = Some((node, error)),
                Said::Waits { .. } | Said::Unreachable => all_refuse = false,
                Said::NoRoom { .. } | Said::Hope => return None,
            }
        }
        let (node, error) = met.or(unmet.filter(|_| all_refuse))?;
        Some((node.clone(), error.clone()))
    }

    /// The same of those that have not answered, where others may have: then a node has let the client in, and one that refuses
    /// it without a greeting counts for nothing.
    pub(super) fn verdict_beside<'t>(
        &self,
        has_answers: bool,
        silent: impl IntoIterator<Item = &'t Target>,
    ) -> Option<(String, ClientError)> {
        let is_met =
            |error: &ClientError| matches!(error, ClientError::NoAccess { greeted: true, .. });
        self.verdict(silent).filter(|(_, error)| !has_answers || is_met(error))
    }

    /// Why one of these nodes does not let this client in, for the text of another error: the first refusal; else that one makes
    /// the login wait.
    pub(super) fn reason<'t>(
        &self,
        targets: impl IntoIterator<Item = &'t Target>,
    ) -> Option<ClientError> {
        let mut waits = None;
        for target in targets {
            match self.0.iter().find(|(other, _)| other.is_of(target)).map(|(_, said)| said) {
                Some(Said::Refused { error, .. }) => return Some(error.clone()),
                Some(Said::Waits { error }) => waits = waits.or(Some(error)),
                Some(Said::NoRoom { .. } | Said::Unreachable | Said::Hope) | None => (),
            }
        }
        waits.cloned()
    }

    /// If this client has no room for another stream at any of these nodes, the error and the node that it is of: each was
    /// tried, and is like that, cannot be reached, or does not let the client in.
    pub(super) fn no_room<'t>(
        &self,
        targets: impl IntoIterator<Item = &'t Target>,
    ) -> Option<(String, ClientError)> {
        let mut told = None;
        for target in targets {
            match &self.0.iter().find(|(other, _)| other.is_of(target))?.1 {
                Said::NoRoom { error, node } => told = Some((node.clone(), error.clone())),
                Said::Refused { .. } | Said::Waits { .. } | Said::Unreachable => (),
                Said::Hope => return None,
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::OwnNetwork;
    use crate::model::host_port::HostPort;

    #[test]
    fn what_all_say_that_can_be_reached_is_final_and_nothing_else() {
        let at = |port| HostPort { host: String::from("127.0.0.1"), port };
        let target = |port: u16| Target {
            name: port.to_string(),
            incarnation: None,
            address: at(port),
            is_live: true,
            is_seed: false,
            counts: Default::default(),
        };
        let all = [target(1), target(2), target(3)];
        let (address, reason) = (String::new(), String::new());
        let refused_by = |greeted| ClientError::NoAccess {
            address: String::new(),
            reason: String::new(),
            code: None,
            greeted,
        };
        let (refused, no_tls) = (refused_by(true), refused_by(false));
        let ours = Box::new(OwnNetwork::named("a").unwrap());
        let other =
            ClientError::OtherNetwork { address: address.clone(), ours, theirs: "b".into() };
        let down = ClientError::Connect { address: address.clone(), reason: reason.clone() };
        let words = crate::error::ServerError::new(Some("too_many".into()), String::from("later"));
        let full = ClientError::Server(words.clone());
        let waits = ClientError::LoginWaits { address: address.clone(), error: Box::new(words) };
        let lost = ClientError::Lost { address, reason };
        let not_ready =
            ClientError::Server(crate::error::ServerError::new(None, String::from("not ready")));
        let unavailable = ErrorClass::Unavailable;
        let mut refusals = Refusals::default();
        let mut verdict = |port, error: &ClientError, class| {
            refusals.on_failed(&target(port), error, class);
            refusals.verdict(&all).is_some()
        };
        assert!(!verdict(1, &refused, unavailable), "the others were not asked");
        assert!(!verdict(2, &down, unavailable), "nor was the third");
        assert!(verdict(3, &lost, ErrorClass::FateUnknown));
        // What a node says last counts.
        assert!(!verdict(2, &not_ready, unavailable), "it lets this client in");
        assert!(!verdict(2, &down, ErrorClass::TryDeadline), "it is slow");
        assert!(verdict(2, &refused, unavailable));
        assert!(verdict(1, &down, unavailable));
        assert!(!verdict(2, &down, unavailable), "nobody refuses any more");
        // Who makes the login wait has not looked at the secret; who is full may let it in.
        assert!(!verdict(1, &waits, unavailable), "nobody refuses");
        assert!(verdict(2, &refused, unavailable), "one refuses, and no other one gives hope");
        assert!(!verdict(1, &full, unavailable), "it may let this client in");
        assert!(!verdict(2, &down, unavailable), "nobody refuses any more");
        assert!(!verdict(1, &down, unavailable), "nobody refuses any more");
        // A stray address: the client's own nodes are only down.
        assert!(!verdict(2, &other, unavailable), "it is of another network");
        assert!(!verdict(2, &no_tls, unavailable), "it may be of another network");
        assert!(!verdict(1, &no_tls, unavailable), "the third is down");
        assert!(verdict(3, &no_tls, unavailable), "no node's certificate is believed");
        assert!(verdict(3, &refused, unavailable));
        assert!(verdict(1, &down, unavailable), "one that has greeted refuses");
        assert!(!verdict(3, &down, unavailable), "the other may be anybody's");
        verdict(2, &no_tls, unavailable);
        verdict(3, &no_tls, unavailable);
        let of = |silent: &[Target], has_answers| refusals.verdict_beside(has_answers, silent);
        assert!(of(&all[1..], false).is_some(), "none of them lets the client in");
        assert!(of(&all[1..], true).is_none(), "the first one lets the client in");
        refusals.on_failed(&target(2), &refused, unavailable);
        // Only those count that there are now.
        refusals.on_failed(&target(3), &not_ready, unavailable);
        assert!(refusals.verdict(&all).is_none());
        assert!(refusals.verdict(&all[..2]).is_some());
        // For the text of an error, a refusal says more than that a login waits, and that more than anything else.
        refusals.on_failed(&target(1), &waits, unavailable);
        assert_eq!(refusals.reason(&all), Some(refused));
        assert_eq!(refusals.reason([&all[2], &all[0]]), Some(waits));
        assert_eq!(refusals.reason(&all[2..]), None);
    }
}
