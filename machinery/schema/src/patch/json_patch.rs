//! JSON patch (RFC 6902), as the library that upstream uses reads it: negative indices count from the end,
//! a member that is not there can be tested for null, replaced and copied.

use super::{MAX_COPIED, MAX_OPERATIONS, NOT_JSON, PatchError, allow, settled};
use crate::json::{Strictness, decode_json};
use crate::tree::{Mut, Ref, Taken, Tree, Value, untyped_schema};
use crate::{Kind, TypeId};

/// Applies a JSON patch to a free-form document.
pub fn json_patch(document: &mut Tree, patch: &[u8]) -> Result<(), PatchError> {
    debug_assert_eq!(document.ty(), TypeId::ANY, "patches work on free-form documents");
    let bad = |problem: String| PatchError::BadPatch(format!("error decoding patch: {problem}"));
    allow(document, patch.len());
    let patch = decode_json(&untyped_schema(), TypeId::ANY, patch, Strictness::Ignore)
        .map_err(|_| PatchError::BadPatch(NOT_JSON.into()))?
        .tree;
    let root = patch.root();
    check_form(root).map_err(bad)?;
    if root.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations {
            count: root.len(),
            limit: MAX_OPERATIONS,
        });
    }
    let mut copied = 0;
    for operation in root.items() {
        apply(document, operation, &mut copied).map_err(PatchError::DoesNotApply)?;
        settled(document)?;
    }
    Ok(())
}

/// A list of objects, in the words of Go's decoder.
fn check_form(root: Ref<'_>) -> Result<(), String> {
    let word = |value: Ref<'_>| match value.kind() {
        Kind::Map => "object",
        Kind::List => "array",
        Kind::String => "string",
        Kind::Bool => "bool",
        _ => "number",
    };
    if root.is_null() {
        return Ok(());
    }
    if root.kind() != Kind::List {
        return Err(format!(
            "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            word(root)
        ));
    }
    match root
        .items()
        .find(|item| item.kind() != Kind::Map && !item.is_null())
    {
        None => Ok(()),
        Some(item) => Err(format!(
            "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
            word(item)
        )),
    }
}

fn apply(document: &mut Tree, operation: Ref<'_>, copied: &mut usize) -> Result<(), String> {
    match operation.get("op").and_then(Ref::as_str).unwrap_or("unknown") {
        "add" => add(document, operation),
        "remove" => remove(document, operation),
        "replace" => replace(document, operation),
        "move" => move_value(document, operation),
        "copy" => copy(document, operation, copied),
        "test" => test(document, operation),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn add(document: &mut Tree, operation: Ref<'_>) -> Result<(), String> {
    let path = text(operation, "path").ok_or("add operation failed to decode path: missing value")?;
    let value = operation.get("value").map_or(Value::Null, Value::Copy);
    at_parent(document, path, |parent, key| add_to(parent, key, value))
        .unwrap_or_else(|| {
            Err(format!(
                "add operation does not apply: doc is missing path: \"{path}\": missing value"
            ))
        })
        .map_err(|error| at(error, "add", path))
}

fn remove(document: &mut Tree, operation: Ref<'_>) -> Result<(), String> {
    let path = text(operation, "path").ok_or("remove operation failed to decode path: missing value")?;
    at_parent(document, path, remove_from)
        .unwrap_or_else(|| {
            Err(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": missing value"
            ))
        })
        .map_err(|error| at(error, "remove", path))
}

fn replace(document: &mut Tree, operation: Ref<'_>) -> Result<(), String> {
    const PATH: &str = "replace operation failed to decode path: operation missing path field: missing value";
    let path = text(operation, "path").ok_or(PATH)?;
    let value = operation.get("value").map_or(Value::Null, Value::Copy);
    if path.is_empty() {
        document.root_mut().set_value(value);
        return Ok(());
    }
    let missing =
        |what| format!("replace operation does not apply: doc is missing {what}: {path}: missing value");
    let outcome = at_parent(document, path, |parent, key| match slot(parent.as_ref(), key) {
        // A member that is not there is added: the library treats it as one that is null.
        Ok(Slot::Member(name)) => {
            parent.set(&name, value);
            Ok(())
        }
        Ok(Slot::Item(index)) => {
            parent
                .item(index)
                .into_iter()
                .for_each(|mut item| item.set_value(value));
            Ok(())
        }
        _ => Err(missing("key")),
    });
    outcome.unwrap_or_else(|| Err(missing("path")))
}

fn move_value(document: &mut Tree, operation: Ref<'_>) -> Result<(), String> {
    const FROM: &str = "move operation failed to decode from: operation, missing from field: missing value";
    let from = text(operation, "from").ok_or(FROM)?;
    let taken = at_parent(document, from, take);
    let taken = taken.ok_or_else(|| {
        format!("move operation does not apply: doc is missing from path: {from}: missing value")
    })?;
    let key = from.rsplit('/').next().unwrap_or_default();
    let value = taken.map_err(|error| at(error, "move", key))?;
    const PATH: &str = "move operation failed to decode path: operation missing path field: missing value";
    let path = text(operation, "path").ok_or(PATH)?;
    at_parent(document, path, |parent, key| {
        add_to(parent, key, Value::Taken(value))
    })
    .unwrap_or_else(|| {
        Err(format!(
            "move operation does not apply: doc is missing destination path: {path}: missing value"
        ))
    })
    .map_err(|error| at(error, "move", path))
}

fn copy(document: &mut Tree, operation: Ref<'_>, copied: &mut usize) -> Result<(), String> {
    const FROM: &str = "copy operation failed to decode from: operation, missing from field: missing value";
    let from = text(operation, "from").ok_or(FROM)?;
    let found = at_parent(document, from, |parent, key| {
        let parent = parent.as_ref();
        // A member that is not there is copied as null.
        match slot(parent, key) {
            Ok(Slot::Member(name)) if parent.get(&name).is_none() => null(),
            _ => get(parent, key).map(Ref::to_tree),
        }
    });
    let found = found.ok_or_else(|| {
        format!("copy operation does not apply: doc is missing from path: {from}: missing value")
    })?;
    let value = found.map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
    *copied += value.root().to_json().len();
    if *copied > MAX_COPIED {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
        ));
    }
    let path = text(operation, "path").ok_or("copy operation failed to decode path: missing value")?;
    at_parent(document, path, |parent, key| {
        add_to(parent, key, Value::Copy(value.root()))
    })
    .unwrap_or_else(|| {
        Err(format!(
            "copy operation does not apply: doc is missing destination path: {path}: missing value"
        ))
    })
    .map_err(|error| format!("error while adding value during copy: {error}"))
}

fn null() -> Result<Tree, String> {
    Tree::from_json("null").map_err(|error| error.to_string())
}

fn test(document: &mut Tree, operation: Ref<'_>) -> Result<(), String> {
    const PATH: &str = "test operation failed to decode path: operation missing path field: missing value";
    let path = text(operation, "path").ok_or(PATH)?;
    let failed = || format!("testing value {path} failed: test failed");
    let expected = operation.get("value");
    let same = |found: Option<Ref<'_>>| match (found, expected) {
        (None, Some(expected)) => expected.is_null(),
        (None, None) => true,
        (Some(found), Some(expected)) => found == expected,
        (Some(found), None) => found.is_null(),
    };
    if path.is_empty() {
        return if same(Some(document.root())) {
            Ok(())
        } else {
            Err(failed())
        };
    }
    let outcome = at_parent(document, path, |parent, key| match slot(parent.as_ref(), key) {
        Ok(Slot::Member(name)) => Ok(same(parent.as_ref().get(&name))),
        Ok(Slot::Item(index)) => Ok(same(parent.as_ref().item(index))),
        Ok(Slot::End) => Err(index_error(key)),
        Err(error) => Err(error),
    });
    match outcome {
        None => Err(format!(
            "test operation does not apply: is missing path: {path}: missing value"
        )),
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(failed()),
        Some(Err(error)) => Err(at(error, "test", path)),
    }
}

/// Place in its parent that a key names.
enum Slot {
    Member(String),
    Item(usize),
    /// `-`, or one behind the last item.
    End,
}

/// Calls `act` with the parent of the value at a path and the value's key; `None` when the parent is not there.
fn at_parent<T>(
    document: &mut Tree,
    path: &str,
    act: impl FnOnce(&mut Mut<'_>, &str) -> Result<T, String>,
) -> Option<Result<T, String>> {
    let (above, key) = path.rsplit_once('/')?;
    let mut parent = document.root_mut();
    for key in above.split('/').skip(1) {
        parent = match slot(parent.as_ref(), &decode_key(key)).ok()? {
            Slot::Member(name) => parent.into_field(&name)?,
            Slot::Item(index) => parent.into_item(index)?,
            Slot::End => return None,
        };
    }
    matches!(parent.as_ref().kind(), Kind::Map | Kind::List).then(|| act(&mut parent, &decode_key(key)))
}

/// `~1` is `/`, `~0` is `~`.
fn decode_key(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn slot(parent: Ref<'_>, key: &str) -> Result<Slot, String> {
    if parent.kind() == Kind::Map {
        return Ok(Slot::Member(key.to_owned()));
    }
    if key == "-" {
        return Ok(Slot::End);
    }
    let index: i64 = key.parse().map_err(|_| index_error(key))?;
    let len = i64::try_from(parent.len()).unwrap_or(i64::MAX);
    let counted = if index < 0 { index + len } else { index };
    match usize::try_from(counted) {
        Ok(place) if counted < len => Ok(Slot::Item(place)),
        Ok(_) if counted == len => Ok(Slot::End),
        _ => Err(invalid_index(index)),
    }
}

fn get<'a>(parent: Ref<'a>, key: &str) -> Result<Ref<'a>, String> {
    let found = match slot(parent, key)? {
        Slot::Member(name) => parent.get(&name),
        Slot::Item(index) => parent.item(index),
        Slot::End => return Err(end_error(parent, key)),
    };
    found.ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
}

/// Removes a value, to be added elsewhere without a copy.
fn take(parent: &mut Mut<'_>, key: &str) -> Result<Taken, String> {
    let found = match slot(parent.as_ref(), key)? {
        Slot::Member(name) => parent.field(&name),
        Slot::Item(index) => parent.item(index),
        Slot::End => return Err(end_error(parent.as_ref(), key)),
    };
    let taken = found.map(|value| value.taken());
    let taken = taken.ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))?;
    remove_from(parent, key).map(|()| taken)
}

fn add_to(parent: &mut Mut<'_>, key: &str, value: Value<'_>) -> Result<(), String> {
    if parent.as_ref().kind() == Kind::Map {
        parent.set(key, value);
        return Ok(());
    }
    if key == "-" {
        parent.push(value);
        return Ok(());
    }
    let index: i64 = key.parse().map_err(|_| {
        format!(
            "value was not a proper array index: '{key}': {}",
            index_error(key)
        )
    })?;
    let len = i64::try_from(parent.as_ref().len()).unwrap_or(i64::MAX);
    // Here -1 is behind the last item.
    let counted = if index < 0 { index + len + 1 } else { index };
    match usize::try_from(counted) {
        Ok(place) if counted <= len => {
            parent.insert(place, value);
            Ok(())
        }
        _ => Err(invalid_index(index)),
    }
}

fn remove_from(parent: &mut Mut<'_>, key: &str) -> Result<(), String> {
    match slot(parent.as_ref(), key)? {
        Slot::Member(name) if parent.remove(&name) => Ok(()),
        Slot::Member(name) => Err(format!("Unable to remove nonexistent key: {name}: missing value")),
        Slot::Item(index) => {
            parent.remove_item(index);
            Ok(())
        }
        Slot::End => Err(end_error(parent.as_ref(), key)),
    }
}

fn end_error(parent: Ref<'_>, key: &str) -> String {
    if key == "-" {
        index_error(key)
    } else {
        invalid_index(i64::try_from(parent.len()).unwrap_or(i64::MAX))
    }
}

fn invalid_index(index: i64) -> String {
    format!("Unable to access invalid index: {index}: invalid index referenced")
}

/// Go's `strconv.Atoi`.
fn index_error(key: &str) -> String {
    format!(
        "strconv.Atoi: parsing {}: invalid syntax",
        crate::leaf::go_quote(key)
    )
}

fn at(error: String, operation: &str, path: &str) -> String {
    if error.contains("does not apply") {
        error
    } else {
        format!("error in {operation} for path: '{path}': {error}")
    }
}

fn text<'a>(operation: Ref<'a>, name: &str) -> Option<&'a str> {
    operation.get(name).and_then(Ref::as_str)
}
