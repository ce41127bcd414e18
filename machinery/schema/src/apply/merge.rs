//! Merging a configuration into a document: what the configuration says counts, what it leaves out stays.

use super::Typed;
use super::rules::{ListForm, SchemaPosition};
use super::set::Element;
use crate::json::{encode_node, write_string};
use crate::table::Schema;
use crate::tree::{Ref, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The merged document as JSON.
pub(super) fn merge(live: Typed<'_>, configuration: &Tree) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    value(
        live.schema,
        &mut out,
        live.document.root(),
        configuration.root(),
        SchemaPosition::root(live.ty),
    );
    out
}

fn value(schema: &Schema, out: &mut Vec<u8>, live: Ref<'_>, wanted: Ref<'_>, place: SchemaPosition<'_>) {
    let form = place.form(schema, live);
    // An item by item or member by member value is not taken away by null.
    if wanted.is_null() && form != ListForm::Leaf && !live.is_empty() {
        return encode_node(live, out);
    }
    match (form, place.form(schema, wanted)) {
        (ListForm::Map, ListForm::Map) if !(live.is_empty() && wanted.is_empty()) => {
            members(schema, out, live, wanted, place);
        }
        (ListForm::List, ListForm::List) if !(live.is_empty() && wanted.is_empty()) => {
            items(schema, out, live, wanted, place);
        }
        _ => encode_node(wanted, out),
    }
}

fn members(schema: &Schema, out: &mut Vec<u8>, live: Ref<'_>, wanted: Ref<'_>, place: SchemaPosition<'_>) {
    let added = wanted.entries().filter(|(name, _)| live.get(name).is_none());
    out.push(b'{');
    for (at, (name, member)) in live.entries().chain(added).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        match (live.get(name), wanted.get(name)) {
            (Some(own), Some(theirs)) => value(schema, out, own, theirs, place.member(schema, name).0),
            _ => encode_node(member, out),
        }
    }
    out.push(b'}');
}

/// The items of both lists, merged where they are the same one.
fn items(schema: &Schema, out: &mut Vec<u8>, live: Ref<'_>, wanted: Ref<'_>, place: SchemaPosition<'_>) {
    let found = |list: Ref<'_>| -> Vec<Option<Element>> {
        list.items()
            .map(|item| place.element(schema, item).ok())
            .collect()
    };
    out.push(b'[');
    for (at, (own, theirs)) in order(&found(live), &found(wanted)).into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let own = own.and_then(|at| live.item(at));
        match (own, theirs.and_then(|at| wanted.item(at))) {
            (Some(own), Some(theirs)) => value(schema, out, own, theirs, place.item(schema)),
            (Some(item), None) | (None, Some(item)) => encode_node(item, out),
            (None, None) => out.extend_from_slice(b"null"),
        }
    }
    out.push(b']');
}

/// Items of the merged list: positions in the live list and in the configuration.
///
/// Items come in the configuration's order; those it does not mention stay where they were among the live ones.
fn order(own: &[Option<Element>], theirs: &[Option<Element>]) -> Vec<(Option<usize>, Option<usize>)> {
    let positions = own.iter().enumerate().rev();
    let by_element: BTreeMap<&Element, usize> = positions
        .filter_map(|(at, element)| Some((element.as_ref()?, at)))
        .collect();
    let mentioned: BTreeSet<&Element> = theirs.iter().flatten().collect();
    let is_mentioned =
        |element: &Option<Element>| element.as_ref().is_some_and(|own| mentioned.contains(own));
    // The first of both lists from a position of the configuration on.
    let mut shared_from = vec![None; theirs.len()];
    let mut last = None;
    for (at, element) in theirs.iter().enumerate().rev() {
        last = element
            .as_ref()
            .filter(|own| by_element.contains_key(own))
            .or(last);
        shared_from[at] = last;
    }
    let mut out = Vec::new();
    let mut next = 0;
    for (at, element) in theirs.iter().enumerate() {
        let shared = shared_from[at];
        while next < own.len() && !(is_mentioned(&own[next]) && own[next].as_ref() == shared) {
            if !is_mentioned(&own[next]) {
                out.push((Some(next), None));
            }
            next += 1;
        }
        let same = element.as_ref().and_then(|own| by_element.get(own).copied());
        out.push((same, Some(at)));
    }
    let left = (next..own.len()).filter(|at| !is_mentioned(&own[*at]));
    out.extend(left.map(|at| (Some(at), None)));
    out
}
