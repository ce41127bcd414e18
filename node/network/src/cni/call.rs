//! Calls of the plugin: environment and configuration, checked as the specification says. Pure.

use super::frame;
use super::install::{LOOPBACK, PLUGIN};
use ipnet::Ipv4Net;
use node_sys::links::NAME_BYTES_MAX;
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Name of our network, also that of its folder of leases.
pub const NETWORK: &str = "knarr";
/// Supported versions of the CNI specification.
pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
const CONTAINER_BYTES_MAX: usize = 256;
const PATH_BYTES_MAX: usize = 4096;
/// Prefixes of ranges that have an address beside the network's, the gateway's and the broadcast address.
const PREFIX_MAX: u8 = 30;

/// An error as the specification has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {details}")]
pub(crate) struct CniError {
    pub(crate) code: u32,
    pub(crate) message: String,
    pub(crate) details: String,
}

/// Codes of the specification, and above 100 our own.
pub(crate) const INCOMPATIBLE_VERSION: u32 = 1;
pub(crate) const INVALID_ENVIRONMENT: u32 = 4;
pub(crate) const INPUT_OUTPUT: u32 = 5;
pub(crate) const INVALID_INPUT: u32 = 6;
pub(crate) const INVALID_CONFIGURATION: u32 = 7;
pub(crate) const TRY_AGAIN_LATER: u32 = 11;
pub(crate) const NOT_AVAILABLE: u32 = 50;
/// A container has a link by this name already.
pub(crate) const DUPLICATE: u32 = 100;
/// A link is not as it was made.
pub(crate) const CHANGED: u32 = 101;

pub(crate) fn error(code: u32, message: impl Into<String>, details: impl ToString) -> CniError {
    CniError {
        code,
        message: message.into(),
        details: details.to_string(),
    }
}

/// Commands with what each needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Add(Attachment),
    Delete(Attachment),
    Check(Attachment),
    /// GC: everything but these attachments goes.
    Collect(Vec<Owner>),
    Status,
    Version,
}

/// A container's link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) container: String,
    pub(crate) interface: String,
}

/// A link in a network namespace; `None` if the runtime deletes a link whose namespace is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) owner: Owner,
    pub(crate) namespace: Option<PathBuf>,
}

/// The plugin that was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Loopback,
    /// A pod's link, with an address of this range.
    Link {
        range: Ipv4Net,
        mtu: Option<u32>,
    },
}

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) version: &'static str,
    pub(crate) kind: Kind,
    pub(crate) command: Command,
    /// Result of the plugins before this one, or of the addition that is checked.
    pub(crate) previous: Option<Value>,
}

/// The configuration that a runtime makes of a list's and a plugin's own.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    cni_version: String,
    #[serde(default)]
    name: String,
    #[serde(rename = "type", default)]
    type_: String,
    subnet: Option<String>,
    mtu: Option<u32>,
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments", default)]
    valid: Vec<ValidAttachment>,
}

#[derive(Debug, Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container: String,
    ifname: String,
}

/// Version in which an error of this input is answered.
pub(crate) fn version_of(body: &[u8]) -> &'static str {
    let read = frame::body(body).and_then(|(_, input)| serde_json::from_slice(input).ok());
    let known = read.and_then(|read: Configuration| known_version(&read.cni_version));
    known.unwrap_or("1.0.0")
}

fn known_version(version: &str) -> Option<&'static str> {
    VERSIONS.into_iter().find(|known| *known == version)
}

impl Call {
    /// Parses and checks the body of a request.
    pub(crate) fn read(body: &[u8]) -> Result<Self, CniError> {
        let (variables, input) =
            frame::body(body).ok_or_else(|| error(INVALID_INPUT, "the request is not whole", ""))?;
        let text = |index: usize| {
            let name = frame::VARIABLES[index];
            std::str::from_utf8(variables[index])
                .map_err(|cause| error(INVALID_ENVIRONMENT, format!("{name} is no text"), cause))
        };
        let read: Configuration = serde_json::from_slice(input)
            .map_err(|cause| error(INVALID_INPUT, "the configuration is not valid", cause))?;
        let version = known_version(&read.cni_version).ok_or_else(|| {
            let supported = VERSIONS.join(", ");
            let details = format!("{:?} is not one of {supported}", read.cni_version);
            error(INCOMPATIBLE_VERSION, "incompatible CNI versions", details)
        })?;
        // Closures, as GC, STATUS and VERSION come without CNI_CONTAINERID and must not be refused for it.
        let attachment = || attachment(text(1)?, text(2)?, text(3)?);
        // DEL alone may lack CNI_NETNS: the specification lets a deletion succeed after the namespace is gone.
        let with_namespace = || match attachment()? {
            Attachment { namespace: None, .. } => Err(error(INVALID_ENVIRONMENT, "CNI_NETNS is missing", "")),
            whole => Ok(whole),
        };
        let command = match text(0)? {
            "ADD" => Command::Add(with_namespace()?),
            "DEL" => Command::Delete(attachment()?),
            "CHECK" => Command::Check(with_namespace()?),
            "GC" => Command::Collect(read.valid.iter().map(ValidAttachment::owner).collect()),
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            other => {
                let message = format!("unknown CNI_COMMAND: {other:?}");
                return Err(error(INVALID_ENVIRONMENT, message, ""));
            }
        };
        Ok(Self {
            version,
            kind: kind(&read)?,
            command,
            previous: read.prev_result,
        })
    }
}

impl ValidAttachment {
    fn owner(&self) -> Owner {
        Owner {
            container: self.container.clone(),
            interface: self.ifname.clone(),
        }
    }
}

fn kind(read: &Configuration) -> Result<Kind, CniError> {
    let invalid = |message: &str, details: &str| Err(error(INVALID_CONFIGURATION, message, details));
    match read.type_.as_str() {
        LOOPBACK => return Ok(Kind::Loopback),
        // Leases are kept by the network's name; a configuration of another name would share the addresses of
        // this one.
        PLUGIN if read.name == NETWORK => {}
        PLUGIN => return invalid("the network is not this agent's", &read.name),
        other => return invalid("unknown type of plugin", other),
    }
    let subnet = read.subnet.as_deref().unwrap_or_default();
    match subnet.parse::<Ipv4Net>() {
        Ok(range) if range.prefix_len() <= PREFIX_MAX => Ok(Kind::Link {
            // Gateway and bounds are computed from the network's address, without the host bits of the text.
            range: range.trunc(),
            mtu: read.mtu,
        }),
        _ => invalid("subnet is no range of IPv4 addresses for pods", subnet),
    }
}

fn attachment(container: &str, namespace: &str, interface: &str) -> Result<Attachment, CniError> {
    let invalid = |name: &str, value: &str| {
        let message = match value {
            "" => format!("{name} is missing"),
            _ => format!("{name} is not valid"),
        };
        error(INVALID_ENVIRONMENT, message, value)
    };
    if !is_container(container) {
        return Err(invalid("CNI_CONTAINERID", container));
    }
    if !is_interface(interface) {
        return Err(invalid("CNI_IFNAME", interface));
    }
    let path = Path::new(namespace);
    if namespace.len() > PATH_BYTES_MAX || !(namespace.is_empty() || path.is_absolute()) {
        return Err(invalid("CNI_NETNS", namespace));
    }
    Ok(Attachment {
        owner: Owner {
            container: container.to_owned(),
            interface: interface.to_owned(),
        },
        namespace: (!namespace.is_empty()).then(|| path.to_owned()),
    })
}

/// The specification's rule: a letter or digit, and then also `_`, `.` and `-`.
fn is_container(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= CONTAINER_BYTES_MAX
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// The kernel's rule for names of links, as the specification repeats it.
fn is_interface(text: &str) -> bool {
    let is_odd = |char: char| char == '/' || char == ':' || char.is_whitespace() || char.is_control();
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !matches!(text, "." | "..") && !text.contains(is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURATION: &str =
        r#"{"cniVersion": "1.0.0", "name": "knarr", "type": "knarr-cni", "subnet": "10.244.0.0/24"}"#;

    fn read(variables: [&str; 4], input: &str) -> Result<Call, CniError> {
        let [command, container, namespace, interface] = variables;
        let all = [command, container, namespace, interface, "", "/p"].map(|text| text.as_bytes().to_vec());
        let request = frame::request(&all, input.as_bytes()).unwrap();
        Call::read(&request[frame::HEADER..])
    }

    #[track_caller]
    fn refused(variables: [&str; 4], input: &str, code: u32) {
        assert_eq!(
            read(variables, input).unwrap_err().code,
            code,
            "{variables:?} {input}"
        );
    }

    #[test]
    fn cni_call_is_read_whole() {
        let call = read(["ADD", "c1", "/n", "eth0"], CONFIGURATION).unwrap();
        let Command::Add(attachment) = call.command else {
            panic!("{call:?}")
        };
        assert_eq!(attachment.namespace.as_deref(), Some(Path::new("/n")));
        assert_eq!((call.version, call.previous), ("1.0.0", None));
        let range = "10.244.0.0/24".parse().unwrap();
        assert_eq!(call.kind, Kind::Link { range, mtu: None });
        // A namespace that is gone has no path.
        assert!(read(["DEL", "c1", "", "eth0"], CONFIGURATION).is_ok());
        let valid = CONFIGURATION.replace(
            "\"type\"",
            r#""cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}], "type""#,
        );
        let Command::Collect(owners) = read(["GC", "", "", ""], &valid).unwrap().command else {
            panic!("no GC")
        };
        assert_eq!(owners[0].container, "a");
    }

    #[test]
    fn cni_call_with_a_fault_gets_the_code_of_the_specification() {
        let good = ["ADD", "c1", "/n", "eth0"];
        for environment in [
            ["NOTHING", "c1", "/n", "eth0"],
            ["ADD", "", "/n", "eth0"],
            ["ADD", "../c1", "/n", "eth0"],
            ["ADD", "c1\n", "/n", "eth0"],
            ["ADD", "c1", "", "eth0"],
            ["ADD", "c1", "n", "eth0"],
            ["ADD", "c1", "/n", ""],
            ["ADD", "c1", "/n", ".."],
            ["ADD", "c1", "/n", "a/b"],
            ["ADD", "c1", "/n", "0123456789abcdef"],
        ] {
            refused(environment, CONFIGURATION, INVALID_ENVIRONMENT);
        }
        refused(good, "{", INVALID_INPUT);
        refused(
            good,
            &CONFIGURATION.replace("1.0.0", "0.2.0"),
            INCOMPATIBLE_VERSION,
        );
        refused(
            good,
            &CONFIGURATION.replace("1.0.0", "2.0.0"),
            INCOMPATIBLE_VERSION,
        );
        for (from, to) in [
            ("\"knarr\"", "\"../etc\""),
            ("knarr-cni", "bridge"),
            ("10.244.0.0/24", "10.244.0.0/31"),
            ("10.244.0.0/24", "fd00::/64"),
            ("subnet", "network"),
        ] {
            refused(good, &CONFIGURATION.replace(from, to), INVALID_CONFIGURATION);
        }
    }

    #[test]
    fn cni_call_of_any_bytes_costs_in_proportion() {
        let variables = ["ADD", "c1", "/n", "eth0", "", "/p"].map(|text| text.as_bytes().to_vec());
        let request = frame::request(&variables, CONFIGURATION.as_bytes()).unwrap();
        machinery_fuzz::fuzz([&request[frame::HEADER..]], |input| {
            let _ = machinery_fuzz::in_proportion(input, 4, || Call::read(input));
        });
        let header: [u8; frame::HEADER] = request[..frame::HEADER].try_into().unwrap();
        assert_eq!(frame::body_length(&header), Some(request.len() - frame::HEADER));
        let mut long = header;
        long[8..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(frame::body_length(&long), None);
        let mut other = header;
        other[7] = b'2';
        assert_eq!(frame::body_length(&other), None, "of frames to come");
        let (code, length) = frame::answer_length(frame::answer(1, b"{}").first_chunk().unwrap()).unwrap();
        assert_eq!((code, length), (1, 2));
    }
}
