//! The end of a node's process at the first panic, of whichever thread or task: what a node would go on
//! from after one is wrong or unknown. The async runtime would catch a task's panic and live on, half
//! dead, and so would a lock that only the panicking thread had; so the process ends from within
//! the panic, before anything is unwound. It writes nothing more to its log: batches that were accepted
//! before are of a state that may have been wrong by then.
//!
//! Only commands that run nodes install this. Who uses the library gets an ordinary panic.

use std::io::Write as _;
use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::logging::is_journal;
use crate::cli::error::EXIT_BROKEN;
use crate::model::invariant::BROKEN;
use crate::rt;

/// How long saying why may take. Whoever reads standard error may have stopped reading.
const LAST_WORDS_MAX: Duration = Duration::from_millis(800);

/// From now on, a panic ends the process with [`EXIT_BROKEN`].
pub(super) fn install() {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    let standard = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if IS_ENDING.swap(true, Ordering::SeqCst) {
            // Another thread is saying why, and ends the process. This one must not get any further.
            rt::stand_still();
        }
        // Without a thread for it, the words may take as long as they like.
        let _ = rt::spawn_thread("last words", || {
            rt::pause(LAST_WORDS_MAX);
            exit_now(EXIT_BROKEN);
        });
        let priority = if is_journal() { "<2>" } else { "" };
        let words = format!("{priority}{}", last_words(info));
        let _ = std::io::stderr().lock().write_all(words.as_bytes());
        // The way there, if RUST_BACKTRACE wants it: that takes long.
        standard(info);
        exit_now(EXIT_BROKEN);
    }));
}

/// Ends the process at once: nothing is dropped, flushed or waited for.
fn exit_now(code: u8) -> ! {
    signal_hook::low_level::exit(code.into())
}

fn last_words(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let what = match text.unwrap_or("a panic without words") {
        text if text.starts_with(BROKEN) => text.to_owned(),
        text => format!("panic: {text}"),
    };
    let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
    format!(
        "error: this node has found a defect of its own and ended: {what}{place}, version {}; restart it: \
         it continues from its data directory, if it has one, and fetches the rest from the other nodes; \
         please report this line and those below it\n",
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_say_what_broke_where_and_what_to_do() {
        // The hook of the whole test process is not touched.
        let said = std::sync::Mutex::new(Vec::new());
        let said = std::sync::Arc::new(said);
        let heard = std::sync::Arc::clone(&said);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| heard.lock().unwrap().push(last_words(info))));
        let _ = panic::catch_unwind(|| panic!("{BROKEN}one is two"));
        let _ = panic::catch_unwind(|| panic!("no invariant"));
        panic::set_hook(before);
        let said = said.lock().unwrap();
        let has = |part: &str| said.iter().any(|words| words.contains(part));
        assert!(has("broken invariant: one is two at src/cli/run/fail_stop.rs:"), "{said:?}");
        assert!(has("panic: no invariant at src/cli/run/fail_stop.rs:"), "{said:?}");
        assert!(said.iter().all(|words| words.contains("; restart it: ")), "{said:?}");
    }
}
