//! `get_tree`: a subtree of one moment, parents before their children.

use super::walk::{Item, Look, ScopeWalk};
use super::{Emit, Garbage, Progress, Source};
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::shorten::Shortener;
use crate::server::session::{Context, NodeNames};

/// How a stream's entries are written.
pub(in crate::server) struct EntryStyle {
    pub(in crate::server) shortener: Shortener,
    pub(in crate::server) chain: ChainLength,
    pub(in crate::server) names: NodeNames,
}

impl EntryStyle {
    /// Writes one entry as a message of a stream.
    pub(in crate::server) fn write(&mut self, item: &Item, emit: &mut Emit<'_>) {
        let (mut message, tag) = emit.begin();
        match &item.entry {
            Some(entry) => message.entry(entry, self.chain, self.names.names()),
            None => message.tock(item.tock),
        };
        self.shortener.add_path(&item.path, &mut message);
        message.tag(tag);
    }
}

/// See the module.
pub(in crate::server) struct TreeSource {
    pub(in crate::server) walk: ScopeWalk,
    pub(in crate::server) style: EntryStyle,
}

impl Source for TreeSource {
    fn next(&mut self, _: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        match self.walk.next() {
            Look::Item(item) => {
                self.style.write(&item, emit);
                Progress::Wrote
            }
            Look::Busy => Progress::Busy,
            Look::End => Progress::Finished,
        }
    }

    fn holds_snapshot(&self) -> bool {
        true
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        self.walk.discard()
    }
}
