//! `get_tree`: a subtree of one moment, parents before their children.

use super::walk::{Item, Look, ScopeWalk};
use super::{Emit, Garbage, Progress, Source};
use crate::hub::bundle::{Encoded, Style};
use crate::model::entry::Entry;
use crate::model::path::Path;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::shorten::Shortener;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::replica::Committed;
use crate::server::access::authorise::Target;
use crate::server::access::sight::Sight;
use crate::server::connections::session::{Context, NodeNames};

/// How a stream's entries are written.
pub(in crate::server) struct EntryStyle {
    pub(in crate::server) shortener: Shortener,
    pub(in crate::server) chain: ChainLength,
    pub(in crate::server) names: NodeNames,
}

impl EntryStyle {
    /// What messages written by this have in common with others'.
    pub(super) fn looks(&self) -> Style {
        Style { cut: self.shortener.cut(), chain: self.chain }
    }

    /// Encodes a bundle's messages, all but the first one, which each stream writes itself, because
    /// its path is shortened by the message before.
    pub(super) fn encode(&self, changes: &[Committed], encoded: &mut Encoded) {
        let Some((first, rest)) = changes.split_first() else { return };
        let mut shortener = self.shortener.clone();
        shortener.pass(&first.path);
        for Committed { path, entry } in rest {
            encoded.add(|out| {
                let mut message = MessageWriter::new(out);
                message.entry(path.as_bytes(), entry, self.chain, self.names.names());
                shortener.add_path(path, &mut message);
            });
        }
    }

    /// Writes one entry as a message of a stream.
    pub(in crate::server) fn write(&mut self, item: &Item, emit: &mut Emit<'_>) {
        match &item.entry {
            Some(entry) => self.write_entry(&item.path, entry, emit),
            None => {
                let (mut message, tag) = emit.begin();
                message.tock(item.tock);
                self.shortener.add_path(&item.path, &mut message);
                message.tag(tag);
            }
        }
    }

    /// Writes one change as a message of a stream.
    pub(super) fn write_change(&mut self, change: &Committed, emit: &mut Emit<'_>) {
        self.write_entry(&change.path, &change.entry, emit);
    }

    fn write_entry(&mut self, path: &Path, entry: &Entry, emit: &mut Emit<'_>) {
        let (mut message, tag) = emit.begin();
        message.entry(path.as_bytes(), entry, self.chain, self.names.names());
        self.shortener.add_path(path, &mut message);
        message.tag(tag);
    }
}

/// See the module.
pub(in crate::server) struct TreeSource {
    walk: ScopeWalk,
    style: EntryStyle,
    sight: Sight,
    /// It ends in an error when its client loses a part of its rights to it. Otherwise what is lost is left out.
    is_cut: bool,
    /// Its client's rights were looked up before.
    has_rights: bool,
}

impl TreeSource {
    pub(in crate::server) fn new(
        walk: ScopeWalk,
        style: EntryStyle,
        sight: Sight,
        is_cut: bool,
    ) -> Self {
        Self { walk, style, sight, is_cut, has_rights: false }
    }
}

impl Source for TreeSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        Some(self.sight.asks())
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        match self.sight.refresh(&cx.access) {
            Err(error) => return Progress::Failed(error),
            Ok(Some(before))
                if self.is_cut && self.has_rights && before.may_show_more(&self.sight) =>
            {
                let text =
                    "this is not all: the user may read less than when this began; ask again";
                return Progress::Failed(ClientError::new(ErrorCode::Denied, text));
            }
            Ok(Some(_)) => self.walk.check_again(&mut self.sight),
            Ok(None) => {}
        }
        self.has_rights = true;
        match self.walk.next(&mut self.sight) {
            Look::Item(item) => {
                self.style.write(&item, emit);
                Progress::Wrote
            }
            Look::Busy => Progress::Searched,
            Look::End => Progress::Finished,
        }
    }

    fn holds_snapshot(&self) -> bool {
        true
    }

    fn rest(&mut self) {
        self.sight.rest();
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        self.walk.discard()
    }
}
