//! Watches the Delete group, and logs what operators should know of: a member that is away, or does not agree, keeps
//! tombstones from being purged, a node with data is not in the group, the mark has grown. It warns
//! soon, repeats the warning while it lasts, and reports when purging is no longer blocked.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::model::ids::Millis;
use crate::model::seen::Mark;
use crate::node::link::Links;
use crate::rt;
use crate::server::purge_block::{PurgeBlock, full_text, left_out_text, mark_text};

/// How often is looked.
const INTERVAL: Duration = Duration::from_secs(1);
/// A member that is away for less is probably just being restarted.
const WARN_AFTER_MS: Millis = 60_000;
/// The warning is repeated this often.
const WARN_AGAIN_MS: Millis = 600_000;

/// Looks every second, until the node ends.
pub(in crate::node) async fn watch_purging(links: Arc<Links>) {
    let mut watch = PurgeWatch::default();
    let (mut left_out, mut grown) = (Lasting::told_at_once(), Lasting::default());
    let mut is_full_told = false;
    while links.stop.or(rt::sleep(INTERVAL)).await.is_some() {
        let now = rt::now();
        let look = |engine: &Engine| (engine.group_view(now), engine.mark().clone());
        let (view, mark) = links.hub.read(look);
        match watch.look(PurgeBlock::of(&view).as_ref(), mark, now) {
            Some(Notice::Blocked(text)) => tracing::warn!("{text}"),
            Some(Notice::Over) => {
                tracing::info!("nothing keeps deleted entries from being purged any more");
            }
            None => {}
        }
        let texts = [left_out.look(left_out_text(&view), now), grown.look(mark_text(&view), now)];
        for text in texts.into_iter().flatten() {
            tracing::warn!("{text}");
        }
        // It stays so, and nothing is wrong: once is enough.
        let full = full_text(&view);
        if let Some(text) = full.filter(|_| !is_full_told) {
            is_full_told = true;
            tracing::info!("{text}");
        }
    }
}

/// Something that is worth a warning once it lasts.
#[derive(Default)]
struct Lasting {
    since: Option<Millis>,
    warned_at: Option<Millis>,
    /// The code that gives the text has waited already.
    at_once: bool,
}

impl Lasting {
    fn told_at_once() -> Self {
        Self { at_once: true, ..Self::default() }
    }

    /// Gives the text back if it is due.
    fn look(&mut self, text: Option<String>, now: Millis) -> Option<String> {
        let Some(text) = text else {
            *self = Self { at_once: self.at_once, ..Self::default() };
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let is_due = match self.warned_at {
            Some(at) => now.saturating_sub(at) >= WARN_AGAIN_MS,
            None => self.at_once || now.saturating_sub(since) >= WARN_AFTER_MS,
        };
        if is_due {
            self.warned_at = Some(now);
        }
        is_due.then_some(text)
    }
}

/// What is worth a line in the log.
#[derive(PartialEq, Eq, Debug)]
enum Notice {
    Blocked(String),
    Over,
}

#[derive(Default)]
struct PurgeWatch {
    /// As of the last look, and since when it has been so: while it rises, others purge and only
    /// this node has no link to the one that it misses.
    mark: Mark,
    mark_since: Millis,
    warned_at: Option<Millis>,
}

impl PurgeWatch {
    fn look(&mut self, block: Option<&PurgeBlock>, mark: Mark, now: Millis) -> Option<Notice> {
        if self.mark != mark {
            self.mark = mark;
            self.mark_since = now;
        }
        let Some(block) = block else {
            return self.warned_at.take().map(|_| Notice::Over);
        };
        let lasts = block.longest_ms().min(now.saturating_sub(self.mark_since));
        let is_due = match self.warned_at {
            Some(at) => now.saturating_sub(at) >= WARN_AGAIN_MS,
            None => lasts >= WARN_AFTER_MS,
        };
        if !is_due {
            return None;
        }
        self.warned_at = Some(now);
        Some(Notice::Blocked(block.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{NodeName, Tock};
    use crate::model::seen::Lineage;

    const START: Millis = 1_000_000;

    fn block(away_ms: Millis) -> PurgeBlock {
        let away = vec![(NodeName::new("n3").unwrap(), away_ms)];
        PurgeBlock { tombstones: 5, away, unanswered: Vec::new() }
    }

    fn mark(tock: u64) -> Mark {
        Mark::from_components([(Lineage(None), Tock::new(tock).unwrap())])
    }

    /// The seconds in which something is said, of those in which purging is blocked, and after.
    fn said(blocked_s: u64, rises_until_s: u64) -> (Vec<u64>, bool) {
        let mut watch = PurgeWatch::default();
        let mut warned = Vec::new();
        for second in 0..=blocked_s {
            let now = START + second * 1_000;
            let mark = mark(second.min(rises_until_s) + 1);
            match watch.look(Some(&block(second * 1_000)), mark, now) {
                Some(Notice::Blocked(text)) => {
                    assert!(text.contains("n3"), "{text}");
                    warned.push(second);
                }
                Some(Notice::Over) => panic!("over in second {second}"),
                None => {}
            }
        }
        let end = START + (blocked_s + 1) * 1_000;
        let is_over = watch.look(None, mark(9_999), end) == Some(Notice::Over);
        assert_eq!(watch.look(None, mark(9_999), end + 1_000), None);
        (warned, is_over)
    }

    #[test]
    fn what_lasts_is_told_after_a_minute_and_then_every_ten() {
        let mut lasting = Lasting::default();
        let told = |lasting: &mut Lasting, seconds: std::ops::RangeInclusive<u64>| -> Vec<u64> {
            let text = || Some("so".to_owned());
            seconds.filter(|s| lasting.look(text(), START + s * 1_000).is_some()).collect()
        };
        assert_eq!(told(&mut lasting, 0..=1_300), [60, 660, 1_260]);
        assert_eq!(lasting.look(None, START + 1_301_000), None);
        assert_eq!(told(&mut lasting, 1_302..=1_362), [1_362]);
    }

    #[test]
    fn it_warns_after_a_minute_and_then_every_ten_and_says_when_it_is_over() {
        assert_eq!(said(59, 0), (vec![], false));
        assert_eq!(said(60, 0), (vec![60], true));
        assert_eq!(said(1_500, 0), (vec![60, 660, 1_260], true));
    }

    #[test]
    fn while_others_purge_there_is_nothing_to_warn_of() {
        assert_eq!(said(600, 600), (vec![], false));
        assert_eq!(said(200, 100), (vec![160], true));
    }

    #[test]
    fn a_node_that_was_away_long_before_anything_was_deleted_is_told_of_at_once() {
        let mut watch = PurgeWatch::default();
        assert_eq!(watch.look(None, Mark::default(), START), None);
        let told = watch.look(Some(&block(3_600_000)), Mark::default(), START + 90_000);
        assert!(matches!(told, Some(Notice::Blocked(_))), "{told:?}");
    }
}
