//! The last things that happened, to find out why a scenario failed.

use crate::model::Change;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::time::Duration;

/// Number of changes that are printed.
const TOLD: usize = 100;

#[derive(Default)]
pub(crate) struct Trace {
    changes: VecDeque<(Duration, Change)>,
}

impl Trace {
    /// Remembers a change that was seen at this time.
    pub(crate) fn add(&mut self, at: Duration, change: Change) {
        // A count of an event that goes up means nothing.
        if change.is_of("Event") && change.before.is_some() {
            return;
        }
        if self.changes.len() == TOLD {
            self.changes.pop_front();
        }
        self.changes.push_back((at, change));
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, change) in &self.changes {
            let object = change.latest();
            write!(f, "{:>8.1}s {} {}", at.as_secs_f64(), object.kind, object.key)?;
            match (&change.before, &change.after) {
                (Some(_), None) => write!(f, " went")?,
                (None, Some(after)) if after.kind == "Event" => {
                    write!(f, " came: {}{}", after.text("/note"), after.text("/message"))?
                }
                (None, Some(after)) => write!(f, " came: {}", after.value()["spec"])?,
                (Some(before), Some(after)) => difference(f, "", before.value(), after.value())?,
                (None, None) => {}
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Each member that is not what it was, with its new value.
fn difference(f: &mut fmt::Formatter<'_>, path: &str, before: &Value, after: &Value) -> fmt::Result {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return if before == after {
            Ok(())
        } else {
            write!(f, " {path}={after}")
        };
    };
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        write!(f, " {path}.{name} went")?;
    }
    for (name, value) in new.iter().filter(|(name, _)| *name != "resourceVersion") {
        let before = old.get(name).unwrap_or(&Value::Null);
        difference(f, &format!("{path}.{name}"), before, value)?;
    }
    Ok(())
}
