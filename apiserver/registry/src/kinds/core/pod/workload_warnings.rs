//! Warnings of objects with a pod template: of their name and of the template.

use super::warnings;
use crate::shared::validation::Path;
use machinery_schema::Ref;

const TEMPLATE: [&str; 2] = ["spec", "template"];

/// The warnings of a new or changed object whose name begins the names of its pods, in upstream's order.
pub(crate) fn of_named(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    of_named_at(&TEMPLATE, object, old)
}

/// The same with the template at a path of its own.
pub(crate) fn of_named_at(path: &[&str], object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let name = match old {
        None => warnings::of_name(object, "Pod names and hostnames"),
        Some(_) => None,
    };
    name.into_iter().chain(at(path, object, old)).collect()
}

/// The warnings of a new or changed template.
pub(crate) fn of_template(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    at(&TEMPLATE, object, old)
}

fn at(path: &[&str], object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let text = |object: Ref<'_>| object.at(path).map(Ref::to_json);
    match object.at(path) {
        Some(template) if old.is_none_or(|old| text(old) != text(object)) => {
            warnings::of(&Path::of(&path.join(".")), template)
        }
        _ => Vec::new(),
    }
}
