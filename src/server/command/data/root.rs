//! `root`: the session moves to a part of the tree and stays there.

use crate::protocol::client::request::{ChainLength, RequestPath};
use crate::protocol::client::{Action, ClientError, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::access::mistakes::Mistake;
use crate::server::connections::session::{Context, NodeNames, Session, Then};

impl Session {
    /// `root`: moves the session's root, relative to the present one, and returns the entry there.
    /// Open streams are not affected.
    pub(in crate::server) fn move_root(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        path: &RequestPath<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let root = self.resolve(cx, Action::Root, path)?.to_path();
        Self::check_ready(cx)?;
        let (entry, names, tock) = cx.hub.read(|engine| {
            (engine.get(root.as_bytes()).cloned(), NodeNames::of(engine), engine.tock())
        });
        // Of policies that are not older than the entry. What may not be read looks as if it were not there.
        let cx = &self.context(cx.shared, cx.now);
        self.authorise(cx, Action::Root, Target::Path(root.as_bytes()))?;
        let may_read =
            cx.access.makes(Mistake::Each(Action::Root)) || cx.access.may_read(root.as_bytes());
        let entry = entry.filter(|_| may_read);
        let mut message = MessageWriter::new(out);
        match &entry {
            Some(entry) => message.entry(root.as_bytes(), entry, ChainLength::WHOLE, names.names()),
            None => message.nil("chain").tock(tock),
        };
        // Below the root that was, and now is: nothing. An array if something was cut off.
        let below = message.key("path");
        if root.is_root() {
            root.encode_ext3(below);
        } else {
            crate::model::value::write_array_len(0, below);
        }
        message.u64("seq", seq);
        self.root = root;
        Ok(Then::Continue)
    }
}
