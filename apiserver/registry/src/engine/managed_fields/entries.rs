//! The record of owners as `metadata.managedFields` has it.

use super::fields::Fields;
use super::manager;
use super::{Subject, Writer, forget};
use crate::shared::validation::Errors;
use jiff::Timestamp;
use machinery_meta::{FieldError, FieldPath};
use machinery_schema::apply::{FieldSet, Steps};
use machinery_schema::{Exceeded, Ref, Tree, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The operation by which a manager got its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// A manager and its fields.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    /// Empty where nothing is known of it.
    pub(super) time: String,
    pub(super) subresource: String,
    pub(super) fields: Fields,
}

/// Distinguishes managers, in the order of upstream's identifiers; of appliers the version does not matter.
pub(super) type Key<'a> = (&'a str, Operation, &'a str, &'a str);

/// Managers by updates beyond which they are joined, the oldest first, as upstream does it.
const MAX_UPDATE_MANAGERS: usize = 10;
const JOINED_MANAGER: &str = "ancient-changes";
/// A record is not larger than this, whatever managers there are: it is read and compared with every write of its object.
const MAX_RECORD_BYTES: usize = 1 << 20;
/// Bytes of an entry beside its fields, about.
const ENTRY_BYTES: usize = 160;
/// Names of subresources are not longer than this.
const MAX_SUBRESOURCE_BYTES: usize = 256;

impl Entry {
    pub(super) fn new(subject: Subject<'_>, writer: &Writer, operation: Operation, fields: FieldSet) -> Self {
        Self {
            manager: writer.manager.clone(),
            operation,
            api_version: subject.api_version(),
            time: writer.now.clone(),
            subresource: subject.subresource.to_owned(),
            fields: Fields::Set(fields),
        }
    }

    pub(super) fn key(&self) -> Key<'_> {
        let version = match self.operation {
            Operation::Apply => "",
            Operation::Update => self.api_version.as_str(),
        };
        (&self.manager, self.operation, version, &self.subresource)
    }

    /// The manager as messages name it.
    pub(super) fn shown(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }

    fn seconds(&self) -> i64 {
        self.time.parse::<Timestamp>().map_or(0, Timestamp::as_second)
    }
}

/// The entries of a record; of two of one manager the last counts.
///
/// # Errors
/// Upstream's words on an entry that cannot be decoded.
pub(super) fn read(record: Option<Ref<'_>>) -> Result<Vec<Entry>, String> {
    let mut owners = stored(record)?;
    for entry in &mut owners {
        entry.fields.check()?;
    }
    Ok(owners)
}

/// The entries of a stored record, fields unread.
///
/// # Errors
/// As [`read`].
pub(super) fn stored(record: Option<Ref<'_>>) -> Result<Vec<Entry>, String> {
    let values = record.into_iter().flat_map(Ref::items).enumerate();
    let all: Vec<Entry> = values
        .map(|(at, value)| entry(at, value))
        .collect::<Result<_, _>>()?;
    let last: HashMap<Key<'_>, usize> = all.iter().enumerate().map(|(at, own)| (own.key(), at)).collect();
    if last.len() == all.len() {
        drop(last);
        return Ok(all);
    }
    let kept: HashSet<usize> = last.into_values().collect();
    let all = all.into_iter().enumerate();
    Ok(all
        .filter(|(at, _)| kept.contains(at))
        .map(|(_, own)| own)
        .collect())
}

fn entry(at: usize, value: Ref<'_>) -> Result<Entry, String> {
    let operation = match value.str("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if value.str("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match value.str("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
        other => {
            return Err(format!(
                "invalid fieldsType {other:?} in managed fields entry {at}"
            ));
        }
    }
    let fields = match value.get("fieldsV1").filter(|fields| !fields.is_null()) {
        None => Fields::default(),
        Some(fields) => Fields::Text(fields.as_raw().map_or_else(|| fields.to_json(), str::to_owned)),
    };
    Ok(Entry {
        manager: value.str("manager").to_owned(),
        operation,
        api_version: value.str("apiVersion").to_owned(),
        time: value.str("time").to_owned(),
        subresource: value.str("subresource").to_owned(),
        fields,
    })
}

/// Joins the oldest entries of updates, by version, until there are no more than there may be (upstream's
/// `capUpdateManagers`).
pub(super) fn limit_updates(steps: &Steps, owners: &mut Vec<Entry>) -> Result<(), Exceeded> {
    let is_update = |entry: &Entry| entry.operation == Operation::Update;
    let mut many = owners.iter().filter(|entry| is_update(entry)).count();
    if many <= MAX_UPDATE_MANAGERS {
        return Ok(());
    }
    let (mut updates, applies): (Vec<Entry>, Vec<Entry>) = owners.drain(..).partition(is_update);
    updates.sort_by(|a, b| (a.seconds(), a.key()).cmp(&(b.seconds(), b.key())));
    let mut kept: Vec<Entry> = Vec::new();
    // The first of each version waits for a second one to be joined with.
    let mut firsts: Vec<Entry> = Vec::new();
    let mut by_version: HashMap<String, usize> = HashMap::new();
    for entry in updates {
        if many <= MAX_UPDATE_MANAGERS {
            kept.push(entry);
        } else if let Some(at) = by_version.get(&entry.api_version) {
            let mut fields = firsts[*at].fields.set().into_owned();
            steps.absorb(&mut fields, &entry.fields.set())?;
            firsts[*at] = joined(fields, entry);
            many -= 1;
        } else {
            by_version.insert(entry.api_version.clone(), firsts.len());
            firsts.push(entry);
        }
    }
    owners.extend(applies);
    owners.extend(firsts);
    owners.extend(kept);
    Ok(())
}

/// Entries of one version as one, of the youngest one's time.
fn joined(fields: FieldSet, youngest: Entry) -> Entry {
    Entry {
        manager: JOINED_MANAGER.to_owned(),
        subresource: String::new(),
        fields: Fields::Set(fields),
        ..youngest
    }
}

/// A record beyond [`MAX_RECORD_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The order in which upstream lists entries.
type SortKey<'e> = (Operation, i64, &'e str, &'e str, &'e str);

fn sort_key(entry: &Entry) -> SortKey<'_> {
    (
        entry.operation,
        entry.seconds(),
        &entry.manager,
        &entry.api_version,
        &entry.subresource,
    )
}

/// Puts the record of owners into an object, in upstream's order.
///
/// # Errors
/// The record is too large; the object has none then.
pub(super) fn store(subject: Subject<'_>, object: &mut Tree, mut owners: Vec<Entry>) -> Result<(), TooLarge> {
    forget(object);
    if owners.is_empty() {
        return Ok(());
    }
    owners.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    let owners: Vec<(&Entry, Cow<'_, str>)> = owners
        .iter()
        .map(|entry| (entry, entry.fields.text(subject.free_form)))
        .collect();
    let bytes: usize = owners
        .iter()
        .map(|(entry, fields)| ENTRY_BYTES + entry.manager.len() + fields.len())
        .sum();
    if bytes > MAX_RECORD_BYTES {
        return Err(TooLarge);
    }
    object.root_mut().entry("metadata");
    object.with(&["metadata"], |mut meta| {
        let mut list = meta.entry("managedFields");
        list.set_value(Value::EmptyList);
        for (entry, fields) in &owners {
            let members = [
                ("manager", entry.manager.as_str()),
                ("operation", entry.operation.text()),
                ("apiVersion", &entry.api_version),
                ("time", &entry.time),
                ("fieldsType", "FieldsV1"),
                ("subresource", &entry.subresource),
            ];
            let said = members.into_iter().filter(|(_, value)| !value.is_empty());
            let mut own: Vec<(&str, Value<'_>)> =
                said.map(|(name, value)| (name, Value::Str(value))).collect();
            own.push(("fieldsV1", Value::Raw(fields)));
            list.push(Value::EmptyMap).set_members(&own);
        }
    });
    Ok(())
}

/// The reason why a record cannot be read; `None` of one that can.
pub fn unreadable(object: &Tree) -> Option<String> {
    let entries = super::record(object)?;
    entries.items().find_map(|entry| {
        let problem = match entry.str("fieldsType") {
            "FieldsV1" => {
                let fields = entry.get("fieldsV1").map(Ref::to_json).unwrap_or_default();
                return match FieldSet::from_json(&fields) {
                    Ok(_) => None,
                    Err(error) => Some(format!("error decoding set from managed fields: {error}")),
                };
            }
            "" => "missing fieldsType in managed fields entry".to_owned(),
            other => format!("invalid fieldsType {other:?} in managed fields entry"),
        };
        Some(problem)
    })
}

/// Problems of a record that an object carries (upstream's `ValidateManagedFields`).
pub(crate) fn problems(record: Ref<'_>, path: &FieldPath) -> Errors {
    let mut problems = Errors::new();
    for (at, entry) in record.items().enumerate() {
        let path = path.index(at);
        let manager = entry.str("manager");
        problems.extend(manager::problems(manager, &path.child("manager")));
        if entry.str("subresource").len() > MAX_SUBRESOURCE_BYTES {
            let path = path.child("subresource");
            problems.push(FieldError::too_long(&path, MAX_SUBRESOURCE_BYTES));
        }
    }
    problems
}
