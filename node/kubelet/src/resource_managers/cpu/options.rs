//! Options of the static policy: upstream's `policy_options`. Pure.

use std::collections::BTreeMap;

use machinery_meta::go_text::go_quote;

use super::distributed::NODES_MAX;
use super::topology::CpuTopology;

/// Options that upstream's gates of 1.37 leave off.
const ALPHA: [&str; 2] = ["align-by-socket", "distribute-cpus-across-cores"];

/// Options of the static policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuOptions {
    /// No core is shared by containers.
    pub(crate) full_cores_only: bool,
    /// Processors of a request that needs several NUMA nodes are spread evenly.
    pub(crate) distribute_across_nodes: bool,
    /// Reserved processors are not in the shared pool.
    pub(crate) strict_reservation: bool,
    /// As few last-level caches as possible.
    pub(crate) prefer_cache: bool,
}

/// Reads options by name.
///
/// # Errors
/// Upstream's sentence: one is not known, off, or has another value.
pub(crate) fn parse(given: &BTreeMap<String, String>) -> Result<CpuOptions, String> {
    let mut options = CpuOptions::default();
    for (name, value) in given {
        if ALPHA.contains(&name.as_str()) {
            let name = go_quote(name);
            return Err(format!(
                "CPU Manager Policy Alpha-level Options not enabled, but option {name} provided"
            ));
        }
        let place = options
            .place(name)
            .ok_or_else(|| format!("unknown CPU Manager Policy option: {}", go_quote(name)))?;
        *place =
            boolean(value).map_err(|error| format!("bad value for option {}: {error}", go_quote(name)))?;
    }
    options.check()?;
    Ok(options)
}

impl CpuOptions {
    fn place(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "full-pcpus-only" => Some(&mut self.full_cores_only),
            "distribute-cpus-across-numa" => Some(&mut self.distribute_across_nodes),
            "strict-cpu-reservation" => Some(&mut self.strict_reservation),
            "prefer-align-cpus-by-uncorecache" => Some(&mut self.prefer_cache),
            _ => None,
        }
    }

    fn check(self) -> Result<(), String> {
        match self.prefer_cache && self.distribute_across_nodes {
            true => Err(
                "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the \
                 same time"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// Checks them against the machine. The bound of NUMA nodes is ours.
    pub(crate) fn check_machine(self, topology: &CpuTopology) -> Result<(), String> {
        match self.distribute_across_nodes && topology.nodes > NODES_MAX {
            true => Err(format!(
                "distribute-cpus-across-numa is not supported on machines with more than {NODES_MAX} NUMA Nodes"
            )),
            false => Ok(()),
        }
    }
}

/// Go's `strconv.ParseBool`.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!(
            "strconv.ParseBool: parsing {}: invalid syntax",
            go_quote(text)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<CpuOptions, String> {
        parse(
            &given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    /// Upstream's `TestPolicyOptionsAvailable` and `TestStaticPolicyOptions`.
    #[test]
    fn cpu_options_are_read_as_upstreams() {
        let options = read(&[("full-pcpus-only", "true"), ("strict-cpu-reservation", "1")]).unwrap();
        assert!(options.full_cores_only && options.strict_reservation && !options.prefer_cache);
        let wrong = |given: &[(&str, &str)]| read(given).unwrap_err();
        assert_eq!(
            wrong(&[("this-option-does-not-exist", "true")]),
            "unknown CPU Manager Policy option: \"this-option-does-not-exist\""
        );
        assert_eq!(
            wrong(&[("align-by-socket", "true")]),
            "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided"
        );
        assert_eq!(
            wrong(&[("full-pcpus-only", "yes")]),
            "bad value for option \"full-pcpus-only\": strconv.ParseBool: parsing \"yes\": invalid syntax"
        );
        let both = wrong(&[
            ("prefer-align-cpus-by-uncorecache", "true"),
            ("distribute-cpus-across-numa", "true"),
        ]);
        assert!(both.ends_with("can not be used at the same time"), "{both}");
    }
}
