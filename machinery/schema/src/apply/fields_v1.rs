//! `FieldsV1`: a set of paths as JSON. `f:` is a member, `k:` an item by keys, `v:` by value, `i:` by position;
//! `.` says that the path itself is in the set too.

use super::set::{Element, FieldSet};
use crate::json::{Strictness, decode_json, write_string};
use crate::tree::{Ref, Tree, untyped_schema};
use crate::{MAX_DEPTH, TypeId};

impl FieldSet {
    /// The set as `FieldsV1`.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out, false);
        String::from_utf8(out).unwrap_or_default()
    }

    fn write(&self, out: &mut Vec<u8>, own: bool) {
        out.push(b'{');
        if own {
            out.extend_from_slice(b"\".\":{},");
        }
        for (element, member) in &self.0 {
            write_string(out, &name(element));
            out.push(b':');
            // Without paths below, being there says that the path is in the set.
            member.below.write(out, member.own && !member.below.is_empty());
            out.push(b',');
        }
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.push(b'}');
    }

    /// Reads `FieldsV1`; elements nobody knows are left out. `None` when it is no JSON object.
    pub fn from_json(text: &str) -> Option<Self> {
        let decoded = decode_json(
            &untyped_schema(),
            TypeId::ANY,
            text.as_bytes(),
            Strictness::Ignore,
        )
        .ok()?;
        (decoded.tree.root().kind() == crate::Kind::Map).then(|| read(decoded.tree.root(), 0).1)
    }
}

fn name(element: &Element) -> String {
    match element {
        Element::Field(name) => format!("f:{name}"),
        Element::Key(keys) => {
            let mut out = b"k:{".to_vec();
            for (at, (name, value)) in keys.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_string(&mut out, name);
                out.push(b':');
                out.extend_from_slice(value.as_bytes());
            }
            out.push(b'}');
            String::from_utf8(out).unwrap_or_default()
        }
        Element::Value(value) => format!("v:{value}"),
        Element::Index(index) => format!("i:{index}"),
    }
}

/// Whether the path itself is in the set, and what is below it.
fn read(value: Ref<'_>, depth: usize) -> (bool, FieldSet) {
    let mut out = FieldSet::default();
    let mut own = value.is_empty();
    if depth > MAX_DEPTH {
        return (own, out);
    }
    for (name, member) in value.entries() {
        if name == "." {
            own = true;
        } else if let Some(element) = element(name) {
            let (inner, below) = read(member, depth + 1);
            out.put(element, inner, below);
        }
    }
    (own, out)
}

fn element(name: &str) -> Option<Element> {
    let (kind, text) = name.split_once(':')?;
    match kind {
        "f" => Some(Element::Field(text.to_owned())),
        "k" => {
            let keys = Tree::from_json(text).ok()?;
            let keys = keys
                .root()
                .entries()
                .map(|(name, value)| (name.to_owned(), value.to_json()));
            Some(Element::Key(keys.collect()))
        }
        "v" => Some(Element::Value(Tree::from_json(text).ok()?.root().to_json())),
        "i" => text.parse().ok().map(Element::Index),
        _ => None,
    }
}
