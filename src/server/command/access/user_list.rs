//! `auth_list`: the users of a method, without anything secret.

use std::sync::Arc;

use distkv_access::users::{Directory, user_path};

use super::users::no_user;
use crate::model::ids::Tock;
use crate::protocol::client::reply::StreamTag;
use crate::protocol::client::request::ChainLength;
use crate::protocol::client::{Action, ClientError, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::connections::session::{Context, NodeNames, Session, Then};
use crate::server::stream::{Emit, Framing, Garbage, Progress, Source};

impl Session {
    /// `auth_list`.
    pub(super) fn list_users(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        (method, user): (&str, Option<&str>),
        chain: ChainLength,
        is_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::AuthList, Target::Node)?;
        Self::check_ready(cx)?;
        let directory = cx.shared.policy_data.directory(cx.hub);
        let list = List { directory, method: method.into(), chain };
        if let Some(user) = user {
            let tag = StreamTag { seq, wseq: self.window.map(|_| 1) };
            if list.directory.user(method, user).is_none() {
                return Err(no_user(method, user));
            }
            list.write(cx, user, &mut MessageWriter::new(out), tag, cx.tock());
            if !is_stream {
                MessageWriter::new(out).u64("seq", seq).tock(cx.tock());
            }
            return Ok(Then::Continue);
        }
        self.check_room(cx, seq)?;
        let of_method = list.directory.users().filter(|user| *user.method == *method);
        let mut names: Vec<Box<str>> = of_method.map(|user| user.ident.clone()).collect();
        names.reverse();
        let source = UserSource { list, names, step: Step::Start, is_stream };
        self.open_stream(cx, seq, Box::new(source));
        Ok(Then::Continue)
    }
}

/// What is listed.
struct List {
    directory: Arc<Directory>,
    method: Box<str>,
    chain: ChainLength,
}

impl List {
    fn write(
        &self,
        cx: &Context<'_>,
        name: &str,
        message: &mut MessageWriter<'_>,
        tag: StreamTag,
        tock: Tock,
    ) {
        message.str("typ", &self.method).str("kind", "user").str("ident", name);
        if !self.chain.is_none()
            && let Ok(path) = user_path(&self.method, name)
        {
            let look = |engine: &crate::engine::Engine| {
                (engine.get(path.as_bytes()).cloned(), NodeNames::of(engine))
            };
            let (entry, names) = cx.hub.read(look);
            if let Some(entry) = entry {
                names.names().write_chain(&entry, self.chain, message.key("chain"));
            }
        }
        if let Some(user) = self.directory.user(&self.method, name) {
            message.str("role", user.role.name());
            if let Some(acl) = &user.acl {
                message.str("acl", acl);
            }
        }
        message.tag(tag).tock(tock);
    }
}

/// What comes next.
#[derive(Clone, Copy)]
enum Step {
    Start,
    Users,
    /// What the original sends behind the end, for clients that did not say that they expect a stream.
    Needless,
    Done,
}

/// See the module. Its frames are its own, because of what may come behind its end.
struct UserSource {
    list: List,
    /// Those that were not sent yet, the last first.
    names: Vec<Box<str>>,
    step: Step,
    is_stream: bool,
}

impl Source for UserSource {
    fn asks(&self) -> Option<(Action, Target<'_>)> {
        // Behind its end there is nothing more to tell.
        let is_told = matches!(self.step, Step::Needless | Step::Done);
        (!is_told).then_some((Action::AuthList, Target::Node))
    }

    fn next(&mut self, cx: &Context<'_>, emit: &mut Emit<'_>) -> Progress {
        match self.step {
            Step::Start => {
                emit.state("start");
                self.step = Step::Users;
            }
            Step::Users => match self.names.pop() {
                Some(name) => {
                    let tock = emit.tock();
                    let (mut message, tag) = emit.begin();
                    self.list.write(cx, &name, &mut message, tag, tock);
                }
                None => {
                    emit.state("end");
                    self.step = if self.is_stream { Step::Done } else { Step::Needless };
                }
            },
            Step::Needless => {
                let tock = emit.tock();
                let (mut message, seq) = emit.begin_single();
                message.u64("seq", seq).tock(tock);
                self.step = Step::Done;
            }
            Step::Done => return Progress::Finished,
        }
        Progress::Wrote
    }

    fn framing(&self) -> Framing {
        match self.step {
            // What ends it ends a stream.
            Step::Users => Framing::Usual,
            Step::Start | Step::Needless | Step::Done => Framing::Single,
        }
    }

    fn close(self: Box<Self>, _: &Context<'_>) -> Option<Garbage> {
        None
    }
}
