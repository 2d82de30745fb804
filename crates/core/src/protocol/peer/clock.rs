//! How far a message moves the clock of whoever takes it in.

use super::{PairById, PeerMessage};
use crate::model::group::GroupConfig;
use crate::model::ids::Tock;
use crate::model::seen::Mark;
use crate::protocol::record::Record;

impl PeerMessage<'_> {
    /// The greatest tock that is anywhere in the message: to take it in may raise the clock to that, now or later. A
    /// message that is passed on ([`super::Relayed`]) is not looked into: nothing that is sent so has a tock.
    #[must_use]
    pub fn top_tock(&self) -> Tock {
        match self {
            Self::Change(change) => change.record.tock.max(change.mark.top()),
            Self::Digest(digest) => digest.tock.max(digest.mark.top()),
            Self::CatchUpAsk(ask) => ask.mark.top(),
            Self::CatchUpKnown(known) => known.tock.max(known.mark.top()),
            Self::CatchUpPart { mark, records, .. } | Self::ContentsVersions { mark, records } => {
                of_records(mark, records)
            }
            Self::ContentsAsk(ask) => ask.mark.top(),
            Self::ContentsList(list) => {
                greatest(list.entries.iter().map(|listed| listed.tock)).max(list.mark.top())
            }
            Self::Group(hello) => {
                let implied = hello.implied.iter();
                let tocks = implied.map(|fact| fact.component.tock().max(fact.at.tock()));
                greatest(tocks).max(of_config(hello.config.as_ref()))
            }
            Self::Propose(proposal) => {
                of_pair(&proposal.pair).max(of_config(proposal.next.as_ref()))
            }
            Self::Announce(pair) => of_pair(pair),
            // All are named, so that nobody adds one with a tock and forgets it here.
            Self::DigestWanted
            | Self::Ack(_)
            | Self::CatchUpMore { .. }
            | Self::CatchUpMissing { .. }
            | Self::CatchUpEnd { .. }
            | Self::CatchUpNames(_)
            | Self::CatchUpVerdict(_)
            | Self::CatchUpDone { .. }
            | Self::CatchUpInvite
            | Self::CatchUpRefused { .. }
            | Self::Topic { .. }
            | Self::KillNode(_)
            | Self::Leave
            | Self::Ping(_)
            | Self::Resync(_)
            | Self::Agree { .. }
            | Self::Disagree(_)
            | Self::Edge(_)
            | Self::Relayed(_)
            | Self::ContentsWant(_) => Tock::default(),
        }
    }
}

fn greatest(tocks: impl Iterator<Item = Tock>) -> Tock {
    tocks.max().unwrap_or_default()
}

fn of_records(mark: &Mark, records: &[Record<'_>]) -> Tock {
    greatest(records.iter().map(|record| record.tock)).max(mark.top())
}

fn of_config(config: Option<&GroupConfig>) -> Tock {
    config.map_or(Tock::default(), |config| config.since.tock())
}

fn of_pair(pair: &PairById) -> Tock {
    let base = greatest(pair.base.iter().map(|(_, component)| component.tock()));
    base.max(pair.from.tock()).max(pair.to)
}
