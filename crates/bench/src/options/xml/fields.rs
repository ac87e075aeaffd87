//! Reads elements by name: each at most once, and only those that are allowed.

use std::collections::HashMap;

use roxmltree::Node;

use super::{REPEATS_MAX, XmlError};

/// The children of an element, by name: each at most once, and only those that are allowed.
pub(super) struct Fields<'a, 'i> {
    parent: Node<'a, 'i>,
    nodes: HashMap<&'a str, Node<'a, 'i>>,
}

impl<'a, 'i> Fields<'a, 'i> {
    pub(super) fn new(parent: Node<'a, 'i>, known: &[&str]) -> Result<Fields<'a, 'i>, XmlError> {
        let mut nodes = HashMap::new();
        for node in parent.children().filter(Node::is_element) {
            let name = node.tag_name().name();
            if !known.contains(&name) {
                return Err(misplaced(node));
            }
            if nodes.insert(name, node).is_some() {
                return Err(XmlError::Twice { line: line(node), element: name.to_owned() });
            }
        }
        Ok(Fields { parent, nodes })
    }

    pub(super) fn node(&self, name: &str) -> Option<Node<'a, 'i>> {
        self.nodes.get(name).copied()
    }

    pub(super) fn required(&mut self, name: &'static str) -> Result<Node<'a, 'i>, XmlError> {
        let parent = self.parent.tag_name().name().to_owned();
        self.node(name).ok_or(XmlError::Missing { line: line(self.parent), element: name, parent })
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.node(name).map(|n| n.text().unwrap_or_default())
    }

    pub(super) fn bad(&self, name: &str, expected: &'static str) -> XmlError {
        value(self.node(name).unwrap_or(self.parent), expected)
    }

    pub(super) fn long(&mut self, name: &str) -> Result<Option<u64>, XmlError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|_| self.bad(name, "a number of 64 bits"))
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u32>, XmlError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|_| self.bad(name, "a number of 32 bits"))
    }

    pub(super) fn percent(&mut self, name: &str, least: u32, most: u32) -> Result<Option<u32>, XmlError> {
        match self.number(name)? {
            Some(n) if n < least || n > most => Err(self.bad(name, "a percentage (RandomRatio: 1 to 99)")),
            n => Ok(n),
        }
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, XmlError> {
        match self.text(name).map(str::trim) {
            None => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(_) => Err(self.bad(name, "true or false")),
        }
    }
}

pub(super) fn repeated<'a, 'i>(
    parent: Node<'a, 'i>,
    name: &'static str,
) -> Result<Vec<Node<'a, 'i>>, XmlError> {
    let nodes: Vec<_> = parent.children().filter(Node::is_element).take(REPEATS_MAX + 1).collect();
    if nodes.len() > REPEATS_MAX {
        return Err(XmlError::Conflict { line: line(parent), why: "more elements than a profile may have" });
    }
    match nodes.iter().find(|n| n.tag_name().name() != name) {
        Some(other) => Err(misplaced(*other)),
        None if nodes.is_empty() => {
            let parent_name = parent.tag_name().name().to_owned();
            Err(XmlError::Missing { line: line(parent), element: name, parent: parent_name })
        }
        None => Ok(nodes),
    }
}

pub(super) fn child<'a, 'i>(parent: Node<'a, 'i>, name: &'static str) -> Result<Node<'a, 'i>, XmlError> {
    let found = parent.children().find(|n| n.tag_name().name() == name);
    let parent_name = || parent.tag_name().name().to_owned();
    found.ok_or_else(|| XmlError::Missing { line: line(parent), element: name, parent: parent_name() })
}

pub(super) fn misplaced(node: Node<'_, '_>) -> XmlError {
    let parent = node.parent().map(|p| p.tag_name().name().to_owned()).unwrap_or_default();
    XmlError::Element { line: line(node), element: node.tag_name().name().to_owned(), parent }
}

pub(super) fn value(node: Node<'_, '_>, expected: &'static str) -> XmlError {
    let text = node.text().unwrap_or_default().trim().chars().take(80).collect();
    XmlError::Value { line: line(node), element: node.tag_name().name().to_owned(), value: text, expected }
}

pub(super) fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}
