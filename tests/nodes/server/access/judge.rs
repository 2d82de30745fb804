//! What a user may do, as the documentation says it, written apart from the code: slow, and short.

use std::collections::{BTreeMap, BTreeSet};

use distkv::model::path::{Element, Path};

use super::{Elements, of_path};

/// The model's tree: values, and none for what was deleted.
pub(super) type Tree = BTreeMap<Path, Option<i64>>;
pub(super) type List = BTreeMap<Path, String>;

/// All ways in which a pattern matches a path, each as the kinds of its steps: they decide in that order.
fn ways(pattern: &[Element<'_>], path: &[Element<'_>], in_many: bool) -> Vec<Vec<u8>> {
    let Some((element, rest)) = path.split_first() else {
        return if pattern.is_empty() { vec![Vec::new()] } else { Vec::new() };
    };
    let mut next = Vec::new();
    if let Some((first, others)) = pattern.split_first() {
        if first == element {
            next.push((0, others, false));
        }
        if *first == Element::Str("+") {
            next.push((1, others, false));
        }
        if *first == Element::Str("#") {
            next.push((2, others, true));
        }
    }
    if in_many {
        next.push((3, pattern, true));
    }
    let mut found = Vec::new();
    for (kind, pattern, in_many) in next {
        for way in ways(pattern, rest, in_many) {
            found.push([vec![kind], way].concat());
        }
    }
    found
}

/// Whether a longer path can match.
fn leads(pattern: &[Element<'_>], path: &[Element<'_>], in_many: bool) -> bool {
    let Some((element, rest)) = path.split_first() else { return true };
    let more = pattern.split_first().is_some_and(|(first, others)| {
        (*first == Element::Str("#") && leads(others, rest, true))
            || ((first == element || *first == Element::Str("+")) && leads(others, rest, false))
    });
    more || (in_many && leads(pattern, rest, true))
}

/// What a user may do.
pub(super) struct Model<'m> {
    pub(super) list: &'m List,
    pub(super) tree: &'m mut Tree,
}

impl Model<'_> {
    pub(super) fn letters(&self, path: &Path) -> String {
        let path: Vec<_> = path.elements().collect();
        let pattern = |pattern: &Path| pattern.clone();
        let mut deciding: Vec<(Vec<u8>, &String)> = Vec::new();
        let mut on_way = false;
        for (key, letters) in self.list {
            let key = pattern(key);
            let key: Vec<_> = key.elements().collect();
            deciding.extend(ways(&key, &path, false).into_iter().min().map(|way| (way, letters)));
            on_way |= leads(&key, &path, false);
        }
        match deciding.into_iter().min() {
            Some((_, letters)) => letters.clone(),
            None if on_way => "xn".into(),
            // The configuration that all may read is below.
            None if path.is_empty() => "x".into(),
            None => String::new(),
        }
    }

    /// What holds for a topic: the way there does not count.
    pub(super) fn topic(&self, topic: &[&str], letter: char) -> bool {
        let whole = [":msg"].iter().chain(topic).map(|level| Element::Str(level));
        self.has(&Path::from_elements(whole).unwrap(), letter)
    }

    pub(super) fn has(&self, path: &Path, letter: char) -> bool {
        self.letters(path).contains(letter)
    }

    pub(super) fn is_open(&self, path: &Path) -> bool {
        (0..path.len()).all(|n| self.has(&path.prefix(n), 'x'))
    }

    pub(super) fn reads(&self, path: &Path) -> bool {
        self.is_open(path) && self.has(path, 'r')
    }

    pub(super) fn value(&self, path: &Path) -> Option<i64> {
        self.tree.get(path).copied().flatten()
    }

    pub(super) fn is_there(&self, path: &Path) -> bool {
        self.tree.iter().any(|(at, value)| at.starts_with(path) && value.is_some())
    }

    pub(super) fn may_set(&self, path: &Path) -> bool {
        let passes = |n| {
            let there = self.is_there(&path.prefix(n + 1));
            self.has(&path.prefix(n), if there { 'x' } else { 'n' })
        };
        let letter = if self.value(path).is_some() { 'w' } else { 'c' };
        (0..path.len()).all(passes) && self.has(path, letter)
    }

    pub(super) fn may_delete(&self, path: &Path) -> bool {
        self.is_open(path) && self.has(path, 'd')
    }

    /// What `get_tree` shows; none if it is refused.
    pub(super) fn walked(
        &self,
        top: &Path,
        empty: bool,
        depth: Option<usize>,
    ) -> Option<BTreeMap<Elements, Option<i64>>> {
        if !self.is_open(top) || !self.has(top, 'e') {
            return None;
        }
        let is_shown = |path: &Path| {
            self.reads(path) && (top.len()..path.len()).all(|n| self.has(&path.prefix(n), 'e'))
        };
        let mut shown: BTreeMap<Path, Option<i64>> = BTreeMap::new();
        for (path, value) in &*self.tree {
            if !path.starts_with(top) || !is_shown(path) || (value.is_none() && !empty) {
                continue;
            }
            for n in (top.len()..path.len()).filter(|_| empty) {
                shown.entry(path.prefix(n)).or_insert(None);
            }
            shown.insert(path.clone(), *value);
        }
        let shown =
            shown.into_iter().filter(|(p, _)| depth.is_none_or(|d| p.len() - top.len() <= d));
        Some(shown.map(|(path, value)| (of_path(&path)[top.len()..].to_vec(), value)).collect())
    }

    /// What `enum` lists.
    pub(super) fn listed(&self, top: &Path, empty: bool) -> Option<BTreeMap<Vec<u8>, Option<i64>>> {
        if !self.is_open(top) || !self.has(top, 'e') {
            return None;
        }
        let below = self.tree.keys().filter(|path| path.starts_with(top) && path.len() > top.len());
        let children: BTreeSet<Path> = below.map(|path| path.prefix(top.len() + 1)).collect();
        let mut listed = BTreeMap::new();
        for child in children {
            let name = of_path(&child).pop().unwrap();
            let has_entry = self.tree.contains_key(&child);
            let leads = self.is_open(&child)
                && self.has(&child, 'x')
                && self
                    .tree
                    .iter()
                    .any(|(p, v)| p.starts_with(&child) && *p != child && v.is_some());
            if has_entry && self.reads(&child) {
                if empty || self.value(&child).is_some() {
                    listed.insert(name, self.value(&child));
                }
            } else if empty && leads {
                listed.insert(name, None);
            }
        }
        Some(listed)
    }
}
