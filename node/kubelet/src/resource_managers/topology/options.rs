//! Options of the policies: upstream's `policy_options`. Pure.

use std::collections::BTreeMap;

use machinery_meta::go_text::go_quote;

use crate::resource_managers::cpu::options::boolean;

/// Upstream's `defaultMaxAllowableNUMANodes`.
const NODES_DEFAULT_MAX: usize = 8;
/// Sets of nodes of more than these cannot be searched; upstream's option has no upper bound.
const NODES_MAX: usize = 12;

/// Options of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopologyOptions {
    /// Of sets with as many nodes the one with the least distances is better.
    pub(crate) prefer_closest: bool,
    /// A machine with more NUMA nodes is refused.
    pub(crate) nodes_max: usize,
}

impl TopologyOptions {
    /// Reads options by name.
    ///
    /// # Errors
    /// Upstream's sentence: one is not known, or has another value.
    pub(crate) fn parse(given: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut options = Self {
            prefer_closest: false,
            nodes_max: NODES_DEFAULT_MAX,
        };
        for (name, value) in given {
            match name.as_str() {
                "prefer-closest-numa-nodes" => {
                    options.prefer_closest = boolean(value)
                        .map_err(|error| format!("bad value for option {}: {error}", go_quote(name)))?;
                }
                "max-allowable-numa-nodes" => options.nodes_max = nodes_max(name, value)?,
                _ => {
                    return Err(format!(
                        "unknown Topology Manager Policy option: {}",
                        go_quote(name)
                    ));
                }
            }
        }
        Ok(options)
    }
}

fn nodes_max(name: &str, value: &str) -> Result<usize, String> {
    let name = go_quote(name);
    let most: usize = value.parse().map_err(|_| {
        format!(
            "unable to convert policy option to integer {name}: strconv.Atoi: parsing {}: invalid syntax",
            go_quote(value)
        )
    })?;
    match most {
        0..NODES_DEFAULT_MAX => Err(format!(
            "the minimum value of {name} should not be less than {NODES_DEFAULT_MAX}"
        )),
        most if most > NODES_MAX => Err(format!("the maximum value of {name} is {NODES_MAX}")),
        most => Ok(most),
    }
}
