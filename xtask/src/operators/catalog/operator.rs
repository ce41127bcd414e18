//! Form of a scenario.

/// A program with its scenario. Words of arguments, of the environment and of files may hold placeholders (`place.rs`).
#[derive(Debug)]
pub(crate) struct Operator {
    /// Name of the tool, and of the folder of its objects.
    pub name: &'static str,
    /// Files and folders of the module that are applied first; a folder with a kustomization is built by it.
    pub definitions: &'static [&'static str],
    /// The program that runs beside the server; none for a command.
    pub program: Option<Program>,
    pub steps: &'static [Step],
}

/// A program that runs beside the server as if it ran in a pod.
#[derive(Debug)]
pub(crate) struct Program {
    pub arguments: &'static [&'static str],
    pub environment: &'static [(&'static str, &'static str)],
    /// Files of the scenario that it reads.
    pub files: &'static [&'static str],
    /// Folders below the run's that it expects to be there.
    pub folders: &'static [&'static str],
    /// Services that lead to it.
    pub services: &'static [Service],
    pub mounts: &'static [Mount],
}

/// Service of the operator's definitions that leads to the program, by an EndpointSlice of ours.
#[derive(Debug)]
pub(crate) struct Service {
    pub namespace: &'static str,
    pub name: &'static str,
    /// Name of the service's port, empty where it has none.
    pub port: &'static str,
}

/// Secret that a kubelet would mount into the program's pod.
#[derive(Debug)]
pub(crate) struct Mount {
    pub namespace: &'static str,
    pub secret: &'static str,
    /// Keys in the order in which their files are written.
    pub keys: &'static [&'static str],
    /// Folder below the run's.
    pub folder: &'static str,
}

/// A step of a scenario.
#[derive(Debug)]
pub(crate) enum Step {
    /// Applies a file of the scenario until the server takes it.
    Apply(&'static str),
    /// Waits until the server refuses to create what a file has, with this text in its answer.
    Refused { file: &'static str, text: &'static str },
    /// Runs the operator's own program to its end.
    Run(&'static [&'static str]),
    /// Runs kubectl to its end.
    Kubectl(&'static [&'static str]),
    /// Waits until `kubectl get` answers with this text at a path.
    Expect {
        get: &'static [&'static str],
        path: &'static str,
        text: &'static str,
    },
    /// Waits until an object is not there.
    Gone(&'static [&'static str]),
    /// Waits until a Secret has a certificate for a name that its own authority has signed.
    Certificate {
        namespace: &'static str,
        secret: &'static str,
        host: &'static str,
    },
}

/// Step that waits for a text at a path of an object.
pub(super) const fn expect(get: &'static [&'static str], path: &'static str, text: &'static str) -> Step {
    Step::Expect { get, path, text }
}
