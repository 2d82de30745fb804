//! What a source file says to the compiler: its code without comments, literals and tests, and all
//! paths that it names, as seen from their crates, however they are written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::{root, source_folders};

/// How often a name may stand for a path that begins with another such name.
const ALIASES_MAX: usize = 4;

/// Attributes that say that the item behind them is a test, or for tests only.
const TEST_ATTRIBUTES: &[&str] = &["#[cfg(test)]", "#[cfg(all(test,", "#[test]"];

/// Items that end with a semicolon, whatever they have in braces.
const ENDS_WITH_SEMICOLON: &[&str] = &["use", "static", "const", "type", "let"];

/// Other items, which end with their braces, or with a semicolon if that comes first.
const ENDS_WITH_BRACE: &[&str] = &[
    "fn",
    "mod",
    "struct",
    "enum",
    "union",
    "impl",
    "trait",
    "unsafe",
    "async",
    "extern",
    "macro_rules",
    "for",
    "while",
    "loop",
    "match",
    "if",
];

/// A path's names; the first is a crate, or what only the compiler can tell.
pub type Names = Vec<String>;

/// What a name stands for.
type Aliases = BTreeMap<String, Vec<Names>>;

/// The code of one file.
pub struct Source {
    krate: String,
    /// The modules above the code, outermost first.
    modules: Names,
    /// The text with blanks for all that is no code, so that each line has its number.
    code: String,
}

/// A path as it is written.
#[derive(Clone, Debug)]
struct Written {
    line: usize,
    /// The module that it stands in.
    modules: Names,
    names: Names,
    /// What a `use` calls it.
    called: Option<String>,
}

impl Source {
    pub fn read(file: &Path) -> Self {
        let relative = file.strip_prefix(root()).unwrap().display().to_string();
        Self::of(&relative, &fs::read_to_string(file).unwrap())
    }

    /// The code of a file with this text at this place, seen from the root.
    pub fn of(relative: &str, text: &str) -> Self {
        let (before, below) = relative.split_once("src/").unwrap_or(("", relative));
        let krate = match before.split('/').nth(1) {
            Some(name) => format!("distkv_{name}"),
            None => String::from("distkv"),
        };
        let below = below.trim_end_matches(".rs");
        let modules = below.split('/').filter(|name| !["mod", "lib", "main"].contains(name));
        let modules = modules.map(str::to_owned).collect();
        Self { krate, modules, code: without_tests(&without_literals(text)) }
    }

    /// The lines with their numbers.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    /// All paths of more than one name, and all that are imported, with their lines.
    pub fn paths(&self) -> Vec<(usize, Names)> {
        let written = written(&self.code, &self.modules);
        let aliases = aliases(&written);
        let mut paths = Vec::new();
        for path in &written {
            for names in self.absolute(&path.modules, &path.names, &aliases, ALIASES_MAX) {
                paths.push((path.line, names));
            }
        }
        paths
    }

    /// The paths that this one may be, seen from their crates.
    fn absolute(
        &self,
        inside: &[String],
        names: &[String],
        known: &Aliases,
        left: usize,
    ) -> Vec<Names> {
        let first = names[0].as_str();
        let above = match first {
            "crate" => Vec::new(),
            "self" => inside.to_vec(),
            "super" => inside[..inside.len().saturating_sub(1)].to_vec(),
            _ => {
                let stands_for = known.get(first).filter(|_| left > 0).into_iter().flatten();
                let stands_for = stands_for.filter(|other| other[0] != first);
                let longer: Vec<Names> =
                    stands_for.map(|other| [other, &names[1..]].concat()).collect();
                if longer.is_empty() {
                    return vec![names.to_vec()];
                }
                let all = longer.iter().flat_map(|n| self.absolute(inside, n, known, left - 1));
                return all.collect();
            }
        };
        let rest = &names[1..];
        if rest.first().is_some_and(|name| name == "super" || name == "self") {
            return self.absolute(&above, rest, known, left);
        }
        let inner = [&above[..], rest].concat();
        let reexported = inner.first().and_then(|name| reexports().get(&self.krate)?.get(name));
        match reexported {
            Some(others) => others.iter().map(|other| [other, &inner[1..]].concat()).collect(),
            None => vec![[std::slice::from_ref(&self.krate), &inner[..]].concat()],
        }
    }
}

/// What the names at the root of each of our crates stand for, if that is of another one.
fn reexports() -> &'static BTreeMap<String, Aliases> {
    static REEXPORTS: OnceLock<BTreeMap<String, Aliases>> = OnceLock::new();
    REEXPORTS.get_or_init(|| {
        let libs = source_folders().into_iter().map(|folder| folder.join("lib.rs"));
        let sources = libs.filter(|lib| lib.is_file()).map(|lib| Source::read(&lib));
        let named = sources.map(|source| {
            let mut names = aliases(&written(&source.code, &[]));
            names.retain(|_, paths| paths.iter().any(|path| path[0].starts_with("distkv")));
            (source.krate, names)
        });
        named.collect()
    })
}

fn aliases(written: &[Written]) -> Aliases {
    let mut aliases = Aliases::new();
    for path in written {
        if let Some(called) = &path.called
            && path.names.len() + usize::from(*called != path.names[0]) > 1
        {
            aliases.entry(called.clone()).or_default().push(path.names.clone());
        }
    }
    aliases
}

pub fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text with blanks for comments and for what strings and characters contain.
pub fn without_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let follows_name = code.chars().next_back().is_some_and(is_name);
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest)
        } else if first == '"' {
            string(rest)
        } else if first == '\'' {
            character(rest)
        } else if first == 'r' && (!follows_name || code.ends_with(['b', 'c'])) {
            raw_string(rest)
        } else {
            0
        };
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        code.extend(rest[..length].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &rest[length..];
    }
    code
}

/// How long the comment is that begins here; comments may have comments in them.
fn comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == '"' && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// How long the character is that begins here; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let behind = at + escaped.len_utf8();
            text[behind..].find('\'').map_or(text.len(), |end| behind + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// How long the raw string is that begins here; 0 if it is another word.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|b| *b == b'#').count();
    let Some(inner) = text[1 + hashes..].strip_prefix('"') else {
        return 0;
    };
    let end = format!("\"{}", "#".repeat(hashes));
    inner.find(&end).map_or(text.len(), |at| 2 + hashes + at + end.len())
}

/// The code with blanks for each item that is a test or only for tests, and for nothing else.
pub fn without_tests(code: &str) -> String {
    let mut left = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = TEST_ATTRIBUTES.iter().filter_map(|a| rest.find(a)).min() {
        let length = item(&rest[at..]);
        left.push_str(&rest[..at]);
        left.extend(rest[at..at + length].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &rest[at + length..];
    }
    left + rest
}

/// How long the item is that begins here, with its attributes: what one `cfg` concerns.
fn item(code: &str) -> usize {
    let mut start = 0;
    loop {
        start += code[start..].len() - code[start..].trim_start().len();
        if !code[start..].starts_with("#[") {
            break;
        }
        start += bracketed(&code[start + 1..]) + 1;
    }
    let word = keyword(&code[start..]);
    let ends_with_semicolon = ENDS_WITH_SEMICOLON.contains(&word);
    let ends_with_brace = ENDS_WITH_BRACE.contains(&word);
    let mut at = start;
    while let Some(c) = code[at..].chars().next() {
        let behind = at + c.len_utf8();
        match c {
            ';' => return behind,
            ',' if !ends_with_semicolon && !ends_with_brace => return behind,
            ')' | ']' | '}' => return at,
            '{' => {
                let before = code[start..at].trim_end();
                let ends = ends_with_brace
                    || before.is_empty()
                    || before.ends_with('!')
                    || before.ends_with("=>");
                at += bracketed(&code[at..]);
                if ends && !ends_with_semicolon && !code[at..].trim_start().starts_with("else") {
                    return at;
                }
            }
            '(' | '[' => at += bracketed(&code[at..]),
            _ => at = behind,
        }
    }
    at
}

/// How long the brackets are that begin here, with all that they contain.
fn bracketed(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// The word that says what kind of item this is, whoever may see it.
fn keyword(item: &str) -> &str {
    let mut item = item;
    if let Some(behind) = item.strip_prefix("pub").filter(|rest| !rest.starts_with(is_name)) {
        item = behind.trim_start();
        if item.starts_with('(') {
            item = item[bracketed(item)..].trim_start();
        }
    }
    let word = &item[..item.find(|c| !is_name(c)).unwrap_or(item.len())];
    let behind = item[word.len()..].trim_start();
    let is_function = ["fn ", "unsafe ", "async ", "extern "].iter().any(|w| behind.starts_with(w));
    if word == "const" && is_function { "fn" } else { word }
}

/// The words and signs of code with their lines; `::` is one.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let rest_of_name = rest.strip_prefix("r#").unwrap_or(rest);
            let word = rest_of_name.find(|c| !is_name(c)).unwrap_or(rest_of_name.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => rest.chars().next().unwrap().len_utf8(),
                word => word,
            };
            let skipped = if word > 0 { rest.len() - rest_of_name.len() } else { 0 };
            tokens.push((number + 1, &rest[skipped..skipped + length]));
            rest = rest[skipped + length..].trim_start();
        }
    }
    tokens
}

/// The paths of code that stands in this module.
fn written(code: &str, modules: &[String]) -> Vec<Written> {
    let tokens = tokens(code);
    let token = |at: usize| tokens.get(at).map_or("", |(_, token)| *token);
    let (mut paths, mut modules) = (Vec::new(), modules.to_vec());
    // How many braces are open, and at which numbers the modules began.
    let (mut depth, mut began) = (0_usize, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].0;
        match token(at) {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if began.last() == Some(&depth) {
                    began.pop();
                    modules.pop();
                }
            }
            "mod" if token(at + 2) == "{" => {
                began.push(depth);
                modules.push(token(at + 1).to_owned());
                at += 1;
            }
            "use" if token(at + 1) != "<" => {
                at = imported(&tokens, at + 1, &modules, &[], &mut paths);
                continue;
            }
            "extern" if token(at + 1) == "crate" => {
                at = imported(&tokens, at + 2, &modules, &[], &mut paths);
                continue;
            }
            word if word.starts_with(is_name) && token(at + 1) == "::" => {
                let mut names = vec![word.to_owned()];
                while token(at + 1) == "::" && token(at + 2).starts_with(is_name) {
                    names.push(token(at + 2).to_owned());
                    at += 2;
                }
                if names.len() > 1 {
                    paths.push(Written { line, modules: modules.clone(), names, called: None });
                }
            }
            _ => {}
        }
        at += 1;
    }
    paths
}

/// Takes what a `use` imports, from this token on, and returns where it ends.
fn imported(
    tokens: &[(usize, &str)],
    mut at: usize,
    modules: &[String],
    above: &[String],
    paths: &mut Vec<Written>,
) -> usize {
    let token = |at: usize| tokens.get(at).map_or("", |(_, token)| *token);
    let mut names = above.to_vec();
    while at < tokens.len() {
        match token(at) {
            "::" => {}
            "{" => {
                at += 1;
                while !["}", ""].contains(&token(at)) {
                    let behind = imported(tokens, at, modules, &names, paths);
                    at = if behind == at || token(behind) == "," { behind + 1 } else { behind };
                }
                return at + 1;
            }
            name if name == "*" || name.starts_with(is_name) && name != "as" => {
                // `self` in braces is what stands before them.
                if name != "self" || names.is_empty() {
                    names.push(name.to_owned());
                }
            }
            _ => break,
        }
        at += 1;
    }
    let line = tokens.get(at.saturating_sub(1)).map_or(0, |(line, _)| *line);
    let mut called = names.last().cloned();
    if token(at) == "as" {
        called = Some(token(at + 1).to_owned());
        at += 2;
    }
    if !names.is_empty() {
        paths.push(Written { line, modules: modules.to_vec(), names, called });
    }
    // At the comma or the brace of the group, or else behind the semicolon.
    at + usize::from(token(at) == ";")
}

fn paths_of(relative: &str, text: &str) -> Vec<String> {
    let paths = Source::of(relative, text).paths();
    paths.into_iter().map(|(line, names)| format!("{line} {}", names.join("::"))).collect()
}

#[test]
fn paths_are_seen_however_they_are_written() {
    let text = "use super::super::engine::Engine;\nuse crate::{\n    engine::{self, Output as O},\n    \
                replica,\n};\nuse std::{env, fs::{self, File}};\nuse distkv_hub::Hub;\n\
                fn f() { fs::read(O::X); ::std::net::y::<A>(); super::z::w(); }\n\
                mod m { use super::super::v; fn g() { self::t::u(); } }\nextern crate std as s;\n\
                fn h() { s::time::Instant::now(); }\n";
    let expected = [
        "1 distkv_core::engine::Engine",
        "3 distkv_core::engine",
        "3 distkv_core::engine::Output",
        "4 distkv_core::replica",
        "6 std::env",
        "6 std::fs",
        "6 std::fs::File",
        "7 distkv_hub::Hub",
        "8 std::fs::read",
        "8 distkv_core::engine::Output::X",
        "8 std::net::y",
        "8 distkv_core::tree::z::w",
        "9 distkv_core::tree::v",
        "9 distkv_core::tree::sums::m::t::u",
        "10 std",
        "11 std::time::Instant::now",
    ];
    assert_eq!(paths_of("crates/core/src/tree/sums.rs", text), expected);
}

#[test]
fn what_a_crate_calls_another_one_is_that_one() {
    let text = "use crate::model::ids::Tick;\nuse super::hub;\n";
    let expected = ["1 distkv_model::ids::Tick", "2 distkv_hub"];
    assert_eq!(paths_of("src/testing.rs", text), expected);
    assert_eq!(paths_of("crates/durable/src/open.rs", text), expected);
    assert_eq!(
        paths_of("crates/sim/src/whole/mod.rs", "use super::engine as e;"),
        ["1 distkv_core::engine"]
    );
}

#[test]
fn only_the_item_behind_the_attribute_is_a_test() {
    for (item, left) in [
        ("mod tests;", ""),
        ("mod tests { fn f() { a::b(); } }", ""),
        ("pub(crate) fn f(a: A, b: B) -> C { D { e } }", ""),
        ("#[must_use]\nconst fn f<A, B>() {}", ""),
        ("use a::{b, c};", ""),
        ("pub const A: B = B { c };", ""),
        ("impl A for B { fn c() {} }", ""),
        ("if a { b } else { c }", ""),
        ("tests::A.with(|a| { b });", ""),
        ("field: Vec<u8>,", ""),
        ("A { b, c } => {}", ""),
        ("thread_local! { static A: B = c; }", ""),
        ("last: A", "}"),
    ] {
        let code = format!("before;\n#[cfg(test)]\n{item}{left}\nbehind() {{ x; }}");
        let kept: Vec<_> = without_tests(&code).split_whitespace().map(str::to_owned).collect();
        let expected = format!("before; {left} behind() {{ x; }}");
        assert_eq!(kept.join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    }
}

#[test]
fn comments_and_literals_are_no_code() {
    let text =
        "a /* { /* b */ } */ 'c' '\\'' b'{' r#\"d \" {\"# \"e \\\" {\" <'f> // g\nh for(\"i\nj\")k";
    let code = without_literals(text);
    let words: Vec<_> = code.split_whitespace().collect();
    assert_eq!(words, ["a", "b", "<'f>", "h", "for(", ")k"]);
    assert_eq!(code.lines().count(), text.lines().count());
}
