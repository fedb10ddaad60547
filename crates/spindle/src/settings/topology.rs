//! The file that assigns hosts to racks, the same at all members:
//!
//! ```toml
//! [racks]
//! row-1 = ["10.0.1.0/24", "fd00:1::/64", "node-a"]
//! row-2 = ["10.0.2.0/24", "10.0.1.7"]
//! ```
//!
//! A member looks itself up in the file, by the addresses at which it can be reached and by the
//! name of its host, and reports the rack to the others. It does not look up others, so members do
//! not disagree if the file is newer at one host than at another.
use super::file::{FILE_BYTES_MAX, FileText, PROBLEMS_MAX};
use super::keys::nearest;
use super::problem::{Origin, Problem};
use super::value::{describe, shorten};
use crate::{Address, RackName};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The only table of the file.
const RACKS: &str = "racks";

/// A file that was read.
#[derive(Debug)]
pub(super) struct Topology {
    entries: BTreeMap<HostMatch, (RackName, Origin)>,
}

/// The meaning of one entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum HostMatch {
    Name(String),
    /// The addresses that differ from this one at most in their last bits; the second field is
    /// their number.
    Net(IpAddr, u8),
}

/// The names and addresses of this host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Host {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) names: Vec<String>,
}

impl Host {
    /// Returns the host that is reached at these addresses; `name` is its own name.
    pub(super) fn new<'a>(reached_at: impl IntoIterator<Item = &'a String>, name: &str) -> Host {
        let mut host = Host::default();
        for text in reached_at {
            match text.parse::<Address>() {
                Ok(address) if address.is_wildcard() || address.port().is_none() => {}
                Ok(address) => match address.ip() {
                    Some(ip) => host.addresses.push(ip.to_canonical()),
                    None => host.name(text.rsplit_once(':').map_or(text, |(name, _)| name)),
                },
                Err(_) => {}
            }
        }
        host.name(name);
        host
    }

    /// Adds a name, and the part before its first dot.
    fn name(&mut self, name: &str) {
        let whole = plain(name);
        let first = whole.split('.').next().unwrap_or_default().to_string();
        for name in [whole, first] {
            if !name.is_empty() && !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.addresses.iter().map(IpAddr::to_string).chain(self.names.iter().cloned());
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

impl HostMatch {
    fn parse(text: &str) -> Result<HostMatch, String> {
        if let Some((address, bits)) = text.split_once('/') {
            let Ok(address) = address.parse::<IpAddr>() else {
                return Err(format!("{:?} is no network: write an IP address before the slash", shorten(text)));
            };
            let width = width(address);
            let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            let Some(bits) = bits.parse::<u8>().ok().filter(|bits| digits && *bits <= width) else {
                return Err(format!(
                    "{:?} is no network: behind the slash stands a number from 0 to {width}",
                    shorten(text)
                ));
            };
            let net = cut(address, width - bits);
            if net != address {
                return Err(format!("{text:?} is an address in a network; did you mean \"{net}/{bits}\"?"));
            }
            // An IPv4 address mapped into IPv6, if the whole network is mapped.
            let address = if width - bits <= 32 { address.to_canonical() } else { address };
            return Ok(HostMatch::Net(address, width - bits));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(HostMatch::Net(address.to_canonical(), 0));
        }
        let name = plain(text);
        let is_message = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // A text of digits and dots only is an address with a mistake.
        let is_name = !name.is_empty() && name.chars().all(is_message) && name.chars().any(|c| c.is_ascii_alphabetic());
        if is_name { Ok(HostMatch::Name(name)) } else { Err(format!("{:?} is none of them", shorten(text))) }
    }

    /// Returns whether the entry includes `host`.
    fn have(&self, host: &Host) -> bool {
        match self {
            HostMatch::Name(name) => host.names.contains(name),
            HostMatch::Net(net, bits) => {
                host.addresses.iter().any(|address| width(*address) == width(*net) && cut(*address, *bits) == *net)
            }
        }
    }

    /// Returns how many bits of an address the entry leaves open: the fewer, the more specific it
    /// is.
    fn bits(&self) -> u8 {
        match self {
            HostMatch::Name(_) => 0,
            HostMatch::Net(_, bits) => *bits,
        }
    }
}

impl fmt::Display for HostMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostMatch::Name(name) => f.write_str(name),
            HostMatch::Net(address, 0) => address.fmt(f),
            HostMatch::Net(net, bits) => write!(f, "{net}/{}", width(*net) - bits),
        }
    }
}

impl Topology {
    /// Reads the topology in `text`; `name` is used in messages.
    ///
    /// # Errors
    /// All mistakes in it.
    pub(super) fn read(name: &str, text: &str) -> Result<Topology, Vec<Problem>> {
        let mut reading =
            TopologyReading { text: FileText::new(name, text), entries: BTreeMap::new(), problems: vec![] };
        if text.len() > FILE_BYTES_MAX {
            let message = format!("{} bytes are no topology; it may have {FILE_BYTES_MAX}", text.len());
            reading.wrong(0..0, message);
        } else {
            let (root, errors) = DeTable::parse_recoverable(text);
            for error in errors {
                reading.wrong(error.span().unwrap_or(0..0), error.message().trim().replace('\n', "; "));
            }
            reading.root(root.get_ref());
        }
        let TopologyReading { entries, problems, .. } = reading;
        if problems.is_empty() { Ok(Topology { entries }) } else { Err(problems) }
    }

    /// Returns the rack of `host`, and the place of the entry. The entry that leaves the fewest
    /// bits of an address open counts; a name leaves none open.
    ///
    /// # Errors
    /// A message, if there is no such entry, or if entries of two racks match.
    pub(super) fn find(&self, host: &Host) -> Result<(&RackName, &Origin), String> {
        let found = || self.entries.iter().filter(|(hosts, _)| hosts.have(host));
        let Some(least) = found().map(|(hosts, _)| hosts.bits()).min() else {
            return Err(format!("none of its racks has this host, which is {host}"));
        };
        let mut best = found().filter(|(hosts, _)| hosts.bits() == least);
        let (hosts, (rack, origin)) = best.next().expect("one has so many bits");
        match best.find(|(_, (other, _))| other != rack) {
            None => Ok((rack, origin)),
            Some((others, (other, there))) => Err(format!(
                "this host, which is {host}, stands in two of its racks: in {rack} by {hosts} ({origin}), and in {other} by {others} ({there})"
            )),
        }
    }
}

/// A file that is being read.
struct TopologyReading<'a> {
    text: FileText<'a>,
    entries: BTreeMap<HostMatch, (RackName, Origin)>,
    problems: Vec<Problem>,
}

impl TopologyReading<'_> {
    fn root(&mut self, root: &DeTable<'_>) {
        for (key, value) in root {
            let name: &str = key.get_ref();
            match value.get_ref() {
                DeValue::Table(racks) if name == RACKS => racks.iter().for_each(|(rack, hosts)| self.rack(rack, hosts)),
                other if name == RACKS => {
                    self.wrong(value.span(), format!("racks is {}; it is a table: write [racks]", describe(other)));
                }
                _ => {
                    let advice = match nearest(name, [RACKS.to_string()]) {
                        Some(near) => format!("did you mean {near}?"),
                        None => "there is racks, with a list of hosts for each rack".to_string(),
                    };
                    self.wrong(key.span(), format!("unknown key {:?} in a topology; {advice}", shorten(name)));
                }
            }
        }
    }

    fn rack(&mut self, name: &Spanned<toml::de::DeString<'_>>, hosts: &Spanned<DeValue<'_>>) {
        let rack: RackName = match name.get_ref().parse() {
            Ok(rack) => rack,
            Err(error) => return self.wrong(name.span(), format!("{error}")),
        };
        let DeValue::Array(items) = hosts.get_ref() else {
            let found = describe(hosts.get_ref());
            return self.wrong(
                hosts.span(),
                format!("rack {rack} is {found}; it is a list: write [\"10.0.1.0/24\", \"node-a\"]"),
            );
        };
        for item in items {
            let read = match item.get_ref() {
                DeValue::String(text) => HostMatch::parse(text.trim()),
                other => Err(format!("{} is none of them", describe(other))),
            };
            match read {
                Ok(hosts) => self.put(hosts, &rack, item.span()),
                Err(message) => {
                    let allowed =
                        "networks such as \"10.0.1.0/24\" or \"fd00:1::/64\", IP addresses, and names of hosts";
                    self.wrong(item.span(), format!("{message}; in a rack are {allowed}"));
                }
            }
        }
    }

    fn put(&mut self, hosts: HostMatch, rack: &RackName, span: std::ops::Range<usize>) {
        match self.entries.get(&hosts) {
            Some((other, origin)) => {
                let message = format!("{hosts} is in rack {other} already ({origin}); leave it in one of them");
                self.wrong(span, message);
            }
            None => {
                let origin = self.text.origin(span);
                self.entries.insert(hosts, (rack.clone(), origin));
            }
        }
    }

    fn wrong(&mut self, span: std::ops::Range<usize>, message: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { origin: self.text.origin(span), key: None, message, is_error: true });
        }
    }
}

/// Returns a name in the form in which names are compared.
fn plain(name: &str) -> String {
    let name = name.trim();
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Returns the number of bits of an address.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns `address` without its last bits.
fn cut(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(bits.into()).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(bits.into()).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RACKS: &str = r#"
[racks]
"row-1" = ["10.0.1.0/24", "fd00:1::/64", "node-a"]
row-2 = ["10.0.2.0/24", "10.0.1.7", "Node-B.example.org.", "0.0.0.0/0"]
row-3 = ["fd00:1::/48", "fd00:1::9"]
empty = []
"#;

    fn host(addresses: &[&str], name: &str) -> Host {
        let addresses: Vec<String> = addresses.iter().map(|text| text.to_string()).collect();
        Host::new(&addresses, name)
    }

    fn found(text: &str, host: &Host) -> Result<(String, String), String> {
        let topology = Topology::read("racks.toml", text).unwrap_or_else(|problems| panic!("{problems:?}"));
        topology.find(host).map(|(rack, origin)| (rack.to_string(), origin.to_string()))
    }

    #[test]
    fn the_smallest_network_counts_and_a_name_or_an_address_most() {
        for (addresses, name, expected) in [
            (&["10.0.1.1:7411"][..], "x", "row-1 racks.toml:3"),
            (&["10.0.1.7:7411"], "x", "row-2 racks.toml:4"),
            (&["[::ffff:10.0.1.7]:1"], "x", "row-2 racks.toml:4"),
            (&["10.0.2.255:0"], "x", "row-2 racks.toml:4"),
            (&["192.168.0.1:1"], "x", "row-2 racks.toml:4"),
            (&["[fd00:1::5]:1"], "x", "row-1 racks.toml:3"),
            (&["[fd00:1:0:1::5]:1"], "x", "row-3 racks.toml:5"),
            (&["[fd00:1::9]:1"], "x", "row-3 racks.toml:5"),
            (&["10.0.2.1:1"], "NODE-A", "row-1 racks.toml:3"),
            (&[], "node-a.example.org", "row-1 racks.toml:3"),
            (&["node-b.example.org:7411", "0.0.0.0:7411"], "x", "row-2 racks.toml:4"),
            (&["unix:/run/a", "[::]:1"], "node-b.example.org", "row-2 racks.toml:4"),
            // If several addresses match, the one in the smallest network counts.
            (&["192.168.0.1:1", "10.0.1.3:1", "[fd00:1::5]:1"], "x", "row-1 racks.toml:3"),
        ] {
            let (rack, origin) = found(RACKS, &host(addresses, name)).unwrap();
            assert_eq!(format!("{rack} {origin}"), expected, "{addresses:?} {name}");
        }
    }

    #[test]
    fn a_host_in_no_rack_or_in_two_is_reported_with_its_names() {
        let none = found(RACKS, &host(&["[fd01::1]:7411", "0.0.0.0:1", "seed.example.org:1"], "node-b\n")).unwrap_err();
        assert_eq!(none, "none of its racks has this host, which is fd01::1, seed.example.org, seed, node-b");
        let two = found(RACKS, &host(&["10.0.1.7:7411"], "node-a")).unwrap_err();
        let expected = "this host, which is 10.0.1.7, node-a, stands in two of its racks: in row-1 by node-a (racks.toml:3), and in row-2 \
                        by 10.0.1.7 (racks.toml:4)";
        assert_eq!(two, expected);
        assert!(found("", &host(&[], "node-a")).is_err());
    }

    #[test]
    fn everything_that_is_wrong_is_told_with_its_place() {
        let text = r#"
rack = 1
other = 2
[racks]
"row 1" = ["10.0.1.0/24"]
a = "10.0.1.0/24"
b = ["10.0.1.5/24", "10.0.1.0/33", "10.0.1/24", "10.0.1", "fd00::1::/64", "host:7411", "node-[a-c]", 7, "", "10.0.0.0/+8"]
c = ["fd00:1::5/64", "10.0.1.0/24", "node-a", "::ffff:10.9.9.9", "10.8.0.0/16"]
d = ["10.0.1.0/24", "NODE-A", "10.9.9.9", "::ffff:10.8.0.0/112"]
"#;
        let allowed =
            "; in a rack are networks such as \"10.0.1.0/24\" or \"fd00:1::/64\", IP addresses, and names of hosts";
        let expected = [
            "racks.toml:2:1: unknown key \"rack\" in a topology; did you mean racks?".to_string(),
            "racks.toml:3:1: unknown key \"other\" in a topology; there is racks, with a list of hosts for each rack".to_string(),
            "racks.toml:5:1: a rack's name is 1 to 64 letters, digits and signs, all of them ASCII and no spaces; \"row 1\" is none"
                .to_string(),
            "racks.toml:6:5: rack a is \"10.0.1.0/24\"; it is a list: write [\"10.0.1.0/24\", \"node-a\"]".to_string(),
            format!("racks.toml:7:6: \"10.0.1.5/24\" is an address in a network; did you mean \"10.0.1.0/24\"?{allowed}"),
            format!("racks.toml:7:21: \"10.0.1.0/33\" is no network: behind the slash stands a number from 0 to 32{allowed}"),
            format!("racks.toml:7:36: \"10.0.1/24\" is no network: write an IP address before the slash{allowed}"),
            format!("racks.toml:7:49: \"10.0.1\" is none of them{allowed}"),
            format!("racks.toml:7:59: \"fd00::1::/64\" is no network: write an IP address before the slash{allowed}"),
            format!("racks.toml:7:75: \"host:7411\" is none of them{allowed}"),
            format!("racks.toml:7:88: \"node-[a-c]\" is none of them{allowed}"),
            format!("racks.toml:7:102: 7 is none of them{allowed}"),
            format!("racks.toml:7:105: \"\" is none of them{allowed}"),
            format!("racks.toml:7:109: \"10.0.0.0/+8\" is no network: behind the slash stands a number from 0 to 32{allowed}"),
            format!("racks.toml:8:6: \"fd00:1::5/64\" is an address in a network; did you mean \"fd00:1::/64\"?{allowed}"),
            "racks.toml:9:6: 10.0.1.0/24 is in rack c already (racks.toml:8); leave it in one of them".to_string(),
            "racks.toml:9:21: node-a is in rack c already (racks.toml:8); leave it in one of them".to_string(),
            "racks.toml:9:31: 10.9.9.9 is in rack c already (racks.toml:8); leave it in one of them".to_string(),
            "racks.toml:9:43: 10.8.0.0/16 is in rack c already (racks.toml:8); leave it in one of them".to_string(),
        ];
        let mut told: Vec<Problem> = Topology::read("racks.toml", text).unwrap_err();
        told.sort_by_key(|problem| match problem.origin {
            Origin::File { line, column, .. } => (line, column),
            _ => (0, 0),
        });
        assert_eq!(told.iter().map(Problem::to_string).collect::<Vec<_>>(), expected);
        let syntax = Topology::read("racks.toml", "[racks]\na = [\n").unwrap_err();
        assert!(syntax[0].to_string().starts_with("racks.toml:"), "{syntax:?}");
        let table = Topology::read("racks.toml", "racks = 3\n").unwrap_err();
        assert_eq!(table[0].to_string(), "racks.toml:1:9: racks is 3; it is a table: write [racks]");
        assert!(Topology::read("racks.toml", &"\n".repeat(2 << 20)).unwrap_err()[0].message.contains("no topology"));
    }

    #[test]
    fn garbage_is_refused_and_nothing_else_happens() {
        let mut below = crate::settings::tests::chance();
        let pieces = ["[", "]", "\"", "\n", "=", ",", "/", ":", ".", "/129", "::", "0", "9", "\u{e4}", "'"];
        let known = host(&["10.0.1.1:1"], "x");
        let (mut wrong, mut found) = (0, 0);
        for _ in 0..5_000 {
            let mut text: Vec<char> = RACKS.chars().collect();
            for _ in 0..=below(4) {
                let at = below(text.len());
                match below(2) {
                    0 => drop(text.drain(at..(at + 1 + below(3)).min(text.len()))),
                    _ => drop(text.splice(at..at, pieces[below(pieces.len())].chars())),
                }
            }
            let text: String = text.into_iter().collect();
            let lines = text.matches('\n').count() as u32 + 1;
            match Topology::read("racks.toml", &text) {
                Ok(topology) => found += u32::from(topology.find(&known).is_ok()),
                Err(problems) => {
                    wrong += 1;
                    for problem in problems {
                        let Origin::File { line, column, .. } = problem.origin else { panic!("{problem} of {text}") };
                        assert!((1..=lines).contains(&line) && column >= 1, "{problem} of {text}");
                        assert!(!problem.message.contains('\n'), "{problem:?}");
                    }
                }
            }
        }
        assert!(wrong > 1_000 && found > 50, "{wrong} {found}");
    }
}
