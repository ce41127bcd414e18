//! Defaults that upstream sets in code, beyond those its OpenAPI publishes (which the table has).
//!
//! A line `a.b[].c=value` sets `c` to a value in every struct the path leads to, unless it is set; [`Additions`] says how.
//! The lines of a kind are compiled once for each version of it; what depends on other fields is a function of the kind.
//! `machinery/api/facts/defaults.json` is what upstream's defaulters were seen to do; the diff tool compares.

use crate::engine::kind::Kind;
use machinery_schema::{Additions, Schema, Tree, TypeId};
use std::sync::Arc;

impl Kind {
    /// All lines of the kind, those of its pods among them.
    pub(crate) fn all_default_lines(&self) -> Vec<String> {
        let own = self.default_lines.iter().flat_map(|lines| *lines);
        let mut lines: Vec<String> = own.map(|line| (*line).to_owned()).collect();
        if let Some(template) = self.pod_template {
            let spec = template.path.join(".");
            lines.extend((template.lines)().iter().map(|line| format!("{spec}.{line}")));
        }
        lines
    }

    /// The lines for one version. Another may lack a field: a line that leads nowhere there says nothing there.
    pub(crate) fn compiled_defaults(&self, schema: &Arc<Schema>, ty: TypeId) -> Additions {
        let lines = self.all_default_lines();
        let lines = lines.iter().map(String::as_str);
        let known = lines.filter(|line| Additions::compile(schema, ty, [*line]).is_ok());
        Additions::compile(schema, ty, known).expect("no line is there twice")
    }

    /// Sets what upstream's code sets.
    pub(crate) fn set_defaults(&self, lines: Option<&Additions>, object: &mut Tree) {
        if let Some(first) = self.hooks.first_defaults {
            first(object);
        }
        if let Some(lines) = lines {
            lines.apply(object);
        }
        if let Some(own) = self.hooks.defaults {
            own(object);
        }
        if let Some(template) = self.pod_template {
            (template.set)(object, template.path);
        }
    }
}
