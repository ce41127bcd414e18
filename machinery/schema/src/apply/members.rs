//! The members of two values, side by side.

use crate::tree::{Node, Ref};
use std::cmp::Ordering;

/// Calls `visit` with the name and both sides of each member that is not the same on both.
pub(super) fn each_changed<'a>(
    before: Option<Ref<'a>>,
    after: Option<Ref<'a>>,
    visit: impl FnMut(&'a str, Option<Ref<'a>>, Option<Ref<'a>>),
) {
    each_where(before, after, |old, new| old != new, visit);
}

/// Calls `visit` with the name and both sides of each member.
pub(super) fn each_member<'a>(
    before: Option<Ref<'a>>,
    after: Option<Ref<'a>>,
    visit: impl FnMut(&'a str, Option<Ref<'a>>, Option<Ref<'a>>),
) {
    each_where(before, after, |_, _| true, visit);
}

/// Visits members, of those on both sides only those that are `wanted`.
fn each_where<'a>(
    before: Option<Ref<'a>>,
    after: Option<Ref<'a>>,
    wanted: impl Fn(Ref<'a>, Ref<'a>) -> bool,
    mut visit: impl FnMut(&'a str, Option<Ref<'a>>, Option<Ref<'a>>),
) {
    if let (Some(before), Some(after)) = (before, after)
        && before.has_type_of(after)
    {
        return in_step(before, after, wanted, visit);
    }
    for (name, old) in before.into_iter().flat_map(Ref::entries) {
        let new = after.and_then(|after| after.get(name));
        if new.is_none_or(|new| wanted(old, new)) {
            visit(name, Some(old), new);
        }
    }
    for (name, new) in after.into_iter().flat_map(Ref::entries) {
        if before.is_none_or(|before| before.get(name).is_none()) {
            visit(name, None, Some(new));
        }
    }
}

/// Members of values of one type are in one order, so that no name has to be looked up.
fn in_step<'a>(
    before: Ref<'a>,
    after: Ref<'a>,
    wanted: impl Fn(Ref<'a>, Ref<'a>) -> bool,
    mut visit: impl FnMut(&'a str, Option<Ref<'a>>, Option<Ref<'a>>),
) {
    let (mut old, mut new) = (before.member_nodes(), after.member_nodes());
    loop {
        let order = match (old.first(), new.first()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => order((before, *one), (after, *other)),
        };
        let one = if order.is_le() { take(&mut old) } else { None };
        let other = if order.is_ge() { take(&mut new) } else { None };
        let (first, second) = (
            one.map(|own| before.child(own)),
            other.map(|own| after.child(own)),
        );
        if let (Some(first), Some(second)) = (first, second)
            && !wanted(first, second)
        {
            continue;
        }
        let name = match (one, other) {
            (Some(one), _) => before.tree.name_of(before.ty, one),
            (None, Some(other)) => after.tree.name_of(after.ty, other),
            (None, None) => return,
        };
        visit(name, first, second);
    }
}

fn take(nodes: &mut &[Node]) -> Option<Node> {
    let (first, rest) = nodes.split_first()?;
    *nodes = rest;
    Some(*first)
}

/// Order of two members: fields by position, then named ones by name.
fn order((one_in, one): (Ref<'_>, Node), (other_in, other): (Ref<'_>, Node)) -> Ordering {
    match (one.is_named(), other.is_named()) {
        (false, false) => one.position().cmp(&other.position()),
        (true, true) => one_in.tree.key_of(one).cmp(other_in.tree.key_of(other)),
        (one, other) => one.cmp(&other),
    }
}
