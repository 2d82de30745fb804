//! `--follow`: conflicts as nodes find them. A node that is lost is connected to again, for as long as that takes.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{LocalBoxStream, select_all, unfold};

use super::ConflictsArgs;
use super::node::Node;
use super::told::{Printer, Told};
use crate::cli::data::rewatch::{PAUSE, may_pass, open_again};
use crate::cli::error::CliError;
use crate::cli::say;
use crate::cli::terminal::output::{printable, shown_path};

/// A node that is followed.
struct Followed<'a> {
    node: Node,
    args: &'a ConflictsArgs,
    phase: Phase,
    pause: Duration,
}

enum Phase {
    /// Conflicts come.
    Live,
    /// It is connected to again.
    Lost,
    /// It is given up.
    Ended,
}

/// What there is to tell of a node.
enum News {
    /// These were found.
    Found(Vec<Told>),
    /// It is lost, and connected to again.
    Lost(CliError),
    /// It is there again, and these were found meanwhile.
    Again { address: String, found: Vec<Told> },
    /// It is not followed any more.
    Ended(CliError),
}

impl Followed<'_> {
    /// None after its end.
    async fn next(&mut self) -> Option<(String, News)> {
        let news = match self.phase {
            Phase::Live => self.come().await,
            Phase::Lost => self.connect_again().await,
            Phase::Ended => return None,
        };
        Some((self.node.name.clone(), news))
    }

    async fn come(&mut self) -> News {
        let lost = match self.node.next().await {
            Ok(told) => {
                self.pause = PAUSE;
                return News::Found(told.into_iter().collect());
            }
            // As it does when it stops.
            Err(None) => CliError::Failure(String::from("the node ended the watch")),
            Err(Some(error)) => match CliError::of_stream(error) {
                error if may_pass(&error) => error,
                error => return self.end(error),
            },
        };
        if self.args.no_reconnect {
            return self.end(lost);
        }
        self.phase = Phase::Lost;
        News::Lost(lost)
    }

    fn end(&mut self, error: CliError) -> News {
        self.phase = Phase::Ended;
        News::Ended(error)
    }

    async fn connect_again(&mut self) -> News {
        let (args, node) = (self.args, &self.node);
        let opened = open_again(&mut self.pause, || async {
            let mut again = node.again(&args.remote, &args.path).await?;
            again.watch().await?;
            let list = again.list(None).await?;
            Ok((again, list))
        });
        let (again, mut found) = match opened.await {
            Ok(opened) => opened,
            Err(error) => return self.end(error),
        };
        // Another life has another list.
        if again.life.is_some() && again.life == self.node.life {
            found.retain(|told| self.node.is_new(told));
        }
        self.phase = Phase::Live;
        self.node = again;
        let address = self.node.remote.connection.address().to_owned();
        News::Again { address, found }
    }
}

/// Prints what is found, until there are enough.
pub(super) async fn follow(
    nodes: Vec<Node>,
    args: &ConflictsArgs,
    printer: &mut Printer,
) -> Result<(), CliError> {
    let is_one = nodes.len() == 1;
    let mut streams: Vec<LocalBoxStream<'_, (String, News)>> = Vec::new();
    for node in nodes {
        let followed = Followed { node, args, phase: Phase::Live, pause: PAUSE };
        streams.push(Box::pin(unfold(followed, async |mut followed| {
            let next = followed.next().await?;
            Some((next, followed))
        })));
    }
    let mut all = select_all(streams);
    while !printer.is_done() {
        let Some((name, news)) = all.next().await else {
            return Err(CliError::Failure(String::from("no node is left to follow")));
        };
        let whose = |error: &CliError| match is_one {
            true => error.to_string(),
            false => format!("{name}: {}", printable(&error.to_string())),
        };
        match news {
            News::Found(found) => found.iter().try_for_each(|told| printer.print(told))?,
            News::Lost(error) => say::line(&format!(
                "{}; connecting again until that works (Ctrl-C ends it)",
                whose(&error)
            )),
            News::Again { address, found } => {
                let path = shown_path(&args.path);
                say::line(&format!(
                    "following conflicts below {path} at {address} (node {name}) again: those that it found meanwhile follow"
                ));
                found.iter().try_for_each(|told| printer.print(told))?;
            }
            News::Ended(error) if is_one => return Err(error),
            News::Ended(error) => say::line(&whose(&error)),
        }
    }
    Ok(())
}
