//! Starts the rows that were requested, in a scope of their own.

use crate::all::rows;
use crate::context::ControllerContext;
use machinery_runtime::Scope;

/// Controllers that run (`--controllers`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Controllers that run by default.
    Default,
    /// These, by name.
    Only(Vec<String>),
    /// As `--controllers` spells it: `name` runs, `-name` does not, `*` stands for those that run by default.
    Listed(Vec<String>),
}

impl Selection {
    /// The first word that names no controller.
    pub fn unknown(&self) -> Option<&str> {
        let words = match self {
            Self::Default => return None,
            Self::Only(words) | Self::Listed(words) => words,
        };
        let is_known = |word: &&String| {
            let name = word.strip_prefix('-').unwrap_or(word);
            name == "*" || rows().iter().any(|row| row.name == name)
        };
        words.iter().find(|word| !is_known(word)).map(String::as_str)
    }

    /// Names of all controllers.
    pub fn known() -> impl Iterator<Item = &'static str> {
        rows().iter().map(|row| row.name)
    }

    /// Reports whether no controller runs at all.
    pub fn is_empty(&self) -> bool {
        !rows().iter().any(|row| self.includes(row.name, row.default))
    }

    fn includes(&self, name: &str, default: bool) -> bool {
        match self {
            Self::Default => default,
            Self::Only(names) => names.iter().any(|own| own == name),
            Self::Listed(words) => {
                let says = |wanted: &str| words.iter().any(|word| word == wanted);
                says(name) || !says(&format!("-{name}")) && says("*") && default
            }
        }
    }
}

/// The running controllers; dropping it ends them.
#[derive(Debug)]
pub struct ControllerManager {
    scope: Scope,
}

impl ControllerManager {
    /// Starts the selected controllers and the informers they share.
    pub fn start(context: &ControllerContext, selection: &Selection) -> Self {
        let scope = context.runtime.child_scope();
        let mut context = context.clone();
        context.runtime = scope.runtime().clone();
        for row in rows()
            .iter()
            .filter(|row| selection.includes(row.name, row.default))
        {
            drop(scope.runtime().spawn(row.name, (row.start)(&context)));
        }
        Self { scope }
    }

    /// Ends them and waits until they have.
    pub async fn stopped(&self) {
        self.scope.stopped().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_without_a_controller_is_empty() {
        let listed =
            |words: &[&str]| Selection::Listed(words.iter().map(|word| (*word).to_owned()).collect());
        for (selection, empty) in [
            (Selection::Default, false),
            (Selection::Only(Vec::new()), true),
            (listed(&["*"]), false),
            (listed(&["-*"]), true),
            (listed(&["-*", "deployment-controller"]), false),
            (listed(&["-deployment-controller"]), true),
        ] {
            assert_eq!(selection.is_empty(), empty, "{selection:?}");
        }
    }
}
