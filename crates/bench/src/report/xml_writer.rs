//! XML in DiskSPD's layout: indented by two spaces per level, one element per line.

use std::fmt::Display;

/// Collects the text.
pub(super) struct Writer {
    pub(super) out: String,
    depth: usize,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { out: String::new(), depth: 0 }
    }

    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n(' ', 2 * self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// `<name>value</name>`.
    pub(super) fn leaf(&mut self, name: &str, value: impl Display) {
        self.line(&format!("<{name}>{}</{name}>", escaped(&value.to_string())));
    }

    /// `<name attributes/>`.
    pub(super) fn empty(&mut self, name: &str, attributes: &[(&str, String)]) {
        self.line(&format!("<{name}{}/>", joined(attributes)));
    }

    /// `<name attributes>value</name>`.
    pub(super) fn leaf_with(&mut self, name: &str, attributes: &[(&str, String)], value: impl Display) {
        self.line(&format!("<{name}{}>{}</{name}>", joined(attributes), escaped(&value.to_string())));
    }

    /// An element with children.
    pub(super) fn node(&mut self, name: &str, children: impl FnOnce(&mut Writer)) {
        self.node_with(name, &[], children);
    }

    /// An element with attributes and children.
    pub(super) fn node_with(
        &mut self,
        name: &str,
        attributes: &[(&str, String)],
        children: impl FnOnce(&mut Writer),
    ) {
        self.line(&format!("<{name}{}>", joined(attributes)));
        self.depth += 1;
        children(self);
        self.depth -= 1;
        self.line(&format!("</{name}>"));
    }
}

fn joined(attributes: &[(&str, String)]) -> String {
    attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value))).collect()
}

/// Escapes text for XML. Control characters, which XML does not allow, become `?`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && !matches!(c, '\t' | '\n') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
