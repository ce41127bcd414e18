//! `cargo xtask tools [NAME…]`: upstream's programs, built from their published Go modules.
//!
//! `conformance/tools/go.mod` pins every version. Programs go to [`Config::tools`], each with a small
//! `.pin` file beside it that says from what; a program whose pin still fits is not built again.
//! A program is put in its place by rename, so a process that runs the old one is not disturbed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::config::Config;
use crate::process;

/// The release that everything here is compared with.
pub(crate) const KUBERNETES_VERSION: &str = "v1.37.1";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Tools to build; all of the defaults when none is named.
    names: Vec<String>,
    /// List what can be built and what is there already.
    #[arg(long)]
    list: bool,
    /// Build even what is there.
    #[arg(long)]
    force: bool,
}

/// Recipe of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recipe {
    /// `go build` of a package, found through our module.
    Build(&'static str),
    /// `go test -c` of a package.
    Test(&'static str),
    /// `go install` of a package at its own module's versions: it does not fit beside Kubernetes' pins.
    Install {
        package: &'static str,
        version: &'static str,
    },
}

/// One row of the table below.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    recipe: Recipe,
    /// Built when no name is given.
    default: bool,
}

const fn tool(name: &'static str, recipe: Recipe) -> Tool {
    Tool {
        name,
        recipe,
        default: true,
    }
}

const fn on_request(name: &'static str, recipe: Recipe) -> Tool {
    Tool {
        name,
        recipe,
        default: false,
    }
}

/// Everything that can be built, in building order: what most checks need comes first.
const TOOLS: &[Tool] = &[
    tool("etcd", Recipe::Build("./etcd")),
    tool(
        "kube-apiserver",
        Recipe::Build("k8s.io/kubernetes/cmd/kube-apiserver"),
    ),
    tool("kubectl", Recipe::Build("k8s.io/kubernetes/cmd/kubectl")),
    tool("facts", Recipe::Build("./facts")),
    tool(
        "kube-controller-manager",
        Recipe::Build("k8s.io/kubernetes/cmd/kube-controller-manager"),
    ),
    tool(
        "kube-scheduler",
        Recipe::Build("k8s.io/kubernetes/cmd/kube-scheduler"),
    ),
    tool(
        "kwok",
        Recipe::Install {
            package: "sigs.k8s.io/kwok/cmd/kwok",
            version: "v0.8.0",
        },
    ),
    tool("ginkgo", Recipe::Build("github.com/onsi/ginkgo/v2/ginkgo")),
    tool("e2e.test", Recipe::Test("k8s.io/kubernetes/test/e2e")),
    on_request("envtest", Recipe::Build("./envtest")),
    on_request("etcdutl", Recipe::Build("go.etcd.io/etcd/etcdutl/v3")),
    on_request("kubelet", Recipe::Build("k8s.io/kubernetes/cmd/kubelet")),
    on_request("kube-proxy", Recipe::Build("k8s.io/kubernetes/cmd/kube-proxy")),
    on_request("agnhost", Recipe::Build("k8s.io/kubernetes/test/images/agnhost")),
    on_request("sample-apiserver", Recipe::Build("k8s.io/sample-apiserver")),
    on_request(
        "nonewprivs",
        Recipe::Build("k8s.io/kubernetes/test/images/nonewprivs"),
    ),
];

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    if arguments.list {
        return list(config);
    }
    let chosen = choose(&arguments.names)?;
    for (index, tool) in chosen.iter().enumerate() {
        let position = format!("[{}/{}]", index + 1, chosen.len());
        if !arguments.force && is_built(config, tool)? {
            println!("{position} {} is there", tool.name);
            continue;
        }
        println!("{position} building {} …", tool.name);
        build(config, tool)?;
    }
    println!("in {}", config.tools.display());
    Ok(())
}

/// Builds what is missing of `names`; other commands call this before they start something.
pub(crate) fn ensure(config: &Config, names: &[&str]) -> Result<()> {
    for tool in TOOLS.iter().filter(|tool| names.contains(&tool.name)) {
        if !is_built(config, tool)? {
            println!("building {} (once) …", tool.name);
            build(config, tool)?;
        }
    }
    Ok(())
}

/// Pins of programs that are built, one below the other: what is made of them is out of date when these have changed.
pub(crate) fn pins(config: &Config, names: &[&str]) -> Result<String> {
    TOOLS
        .iter()
        .filter(|tool| names.contains(&tool.name))
        .map(|tool| expected_pin(config, tool))
        .collect()
}

fn choose(names: &[String]) -> Result<Vec<&'static Tool>> {
    for name in names {
        if !TOOLS.iter().any(|tool| tool.name == name) {
            let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
            bail!("no tool {name:?}; there are: {}", known.join(" "));
        }
    }
    let chosen = |tool: &&Tool| match names {
        [] => tool.default,
        _ => names.iter().any(|name| name == tool.name),
    };
    Ok(TOOLS.iter().filter(chosen).collect())
}

fn list(config: &Config) -> Result<()> {
    for tool in TOOLS {
        let state = match (is_built(config, tool)?, tool.default) {
            (true, _) => "built",
            (false, true) => "missing",
            (false, false) => "on request",
        };
        println!("{:<24} {state}", tool.name);
    }
    Ok(())
}

fn is_built(config: &Config, tool: &Tool) -> Result<bool> {
    let program = config.tools.join(tool.name);
    if !program.try_exists()? {
        return Ok(false);
    }
    let pin = fs::read_to_string(pin_path(&program)).unwrap_or_default();
    Ok(pin == expected_pin(config, tool)?)
}

fn build(config: &Config, tool: &Tool) -> Result<()> {
    fs::create_dir_all(&config.tools)?;
    let program = config.tools.join(tool.name);
    let fresh = config.tools.join(format!(".{}.new", tool.name));
    let mut go = process::command("go");
    go.env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .current_dir(config.root.join("conformance/tools"));
    match tool.recipe {
        Recipe::Build(package) => {
            go.args(["build", "-ldflags", &linker_flags(), "-o"])
                .arg(&fresh)
                .arg(package);
        }
        Recipe::Test(package) => {
            go.args(["test", "-c", "-ldflags", &linker_flags(), "-o"])
                .arg(&fresh)
                .arg(package);
        }
        Recipe::Install { package, version } => {
            go.env("GOBIN", config.tools.join(".install"))
                .args(["install", "-ldflags", "-s -w"])
                .arg(format!("{package}@{version}"));
        }
    }
    process::run(&mut go).with_context(|| format!("building {}", tool.name))?;
    if let Recipe::Install { .. } = tool.recipe {
        fs::rename(config.tools.join(".install").join(tool.name), &fresh)?;
    }
    fs::rename(&fresh, &program)?;
    fs::write(pin_path(&program), expected_pin(config, tool)?)?;
    Ok(())
}

/// The folder of a Go module of the version that `conformance/tools` pins, downloaded if it is not there.
pub(crate) fn module(config: &Config, path: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Module {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    let mut go = process::command("go");
    go.env("GOFLAGS", "-mod=mod")
        .current_dir(config.root.join("conformance/tools"))
        .args(["mod", "download", "-json", path]);
    let module: Module = serde_json::from_str(&process::output(&mut go)?)
        .with_context(|| format!("reading what go says of {path}"))?;
    Ok(module.dir)
}

/// Flags without which clients see a version skew and the server says v0.0.0.
fn linker_flags() -> String {
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={KUBERNETES_VERSION} -X {package}.gitMajor=1 -X {package}.gitMinor=37 -X {package}.gitTreeState=clean"
    )
}

fn pin_path(program: &Path) -> std::path::PathBuf {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    program.with_file_name(format!(".{name}.pin"))
}

/// Pin of a program: the module's versions for most, and the source too where it is ours.
fn expected_pin(config: &Config, tool: &Tool) -> Result<String> {
    let module = config.root.join("conformance/tools");
    let mut pin = format!("{:?}\n", tool.recipe);
    match tool.recipe {
        Recipe::Install { .. } => return Ok(pin),
        Recipe::Build(_) | Recipe::Test(_) => pin.push_str(&linker_flags()),
    }
    let go_mod = fs::read_to_string(module.join("go.mod")).context("reading go.mod")?;
    let direct = go_mod.lines().filter(|line| !line.contains("// indirect"));
    pin.extend(direct.map(|line| format!("\n{line}")));
    if let Recipe::Build(package) = tool.recipe
        && let Some(folder) = package.strip_prefix("./")
    {
        let mut sources: Vec<_> = fs::read_dir(module.join(folder))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        sources.sort();
        for source in sources {
            pin.push_str(&fs::read_to_string(source)?);
        }
    }
    Ok(pin)
}
