//! The page: what is at `/` and below `/web/`. Its files are part of the program; nothing else is read.

use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use crate::message::Reply;

/// What the page may do: run its own scripts, show its own styles and pictures, and ask this node. Nothing may be made
/// of a text but a text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// A file: its path, its kind, and what is in it.
type File = (&'static str, &'static str, &'static [u8]);

macro_rules! file {
    ($name:literal, $kind:literal) => {
        (concat!("/web/", $name), $kind, include_bytes!(concat!("../../../web/", $name)))
    };
}

const INDEX: &[u8] = include_bytes!("../../../web/index.html");

const FILES: &[File] = &[
    ("/", "text/html; charset=utf-8", INDEX),
    file!("icon.svg", "image/svg+xml"),
    file!("style.css", "text/css; charset=utf-8"),
    file!("api.js", "text/javascript; charset=utf-8"),
    file!("app.js", "text/javascript; charset=utf-8"),
    file!("cluster.js", "text/javascript; charset=utf-8"),
    file!("compare.js", "text/javascript; charset=utf-8"),
    file!("conflicts.js", "text/javascript; charset=utf-8"),
    file!("data.js", "text/javascript; charset=utf-8"),
    file!("dom.js", "text/javascript; charset=utf-8"),
    file!("drafts.js", "text/javascript; charset=utf-8"),
    file!("entry.js", "text/javascript; charset=utf-8"),
    file!("history.js", "text/javascript; charset=utf-8"),
    file!("paths.js", "text/javascript; charset=utf-8"),
    file!("reload.js", "text/javascript; charset=utf-8"),
    file!("seen.js", "text/javascript; charset=utf-8"),
    file!("traffic.js", "text/javascript; charset=utf-8"),
    file!("tree.js", "text/javascript; charset=utf-8"),
];

/// The file at a path; none if there is no such file.
pub(crate) fn file(path: &str) -> Option<Reply> {
    let (_, kind, bytes) = FILES.iter().find(|(at, _, _)| *at == path)?;
    let policy = HeaderValue::from_static(POLICY);
    Some(Reply::new(StatusCode::OK, kind, *bytes).with(CONTENT_SECURITY_POLICY, policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files together, bytes.
    const PAGE_BYTES: usize = 100 << 10;

    #[test]
    fn all_files_of_the_page_are_served_and_are_small() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web")).unwrap();
        let mut bytes = 0;
        for entry in folder {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path =
                if name == "index.html" { String::from("/") } else { format!("/web/{name}") };
            assert!(file(&path).is_some(), "{path}");
            bytes += entry.metadata().unwrap().len();
        }
        assert!(bytes < PAGE_BYTES as u64, "{bytes}");
        assert!(file("/web/../Cargo.toml").is_none() && file("/web/").is_none());
    }

    #[test]
    fn nothing_of_the_page_comes_from_elsewhere_or_makes_markup_of_text() {
        for (path, _, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http:",
                "https:",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "style=",
            ] {
                assert!(!text.contains(forbidden), "{path}: {forbidden}");
            }
        }
    }
}
