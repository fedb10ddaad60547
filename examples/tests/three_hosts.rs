//! Three hosts with TLS: here, three runtime directories and three addresses of the loopback
//! interface, with the settings files that the example ships.
mod support;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Scratch, Terminal};

const IDS: [u64; 3] = [1, 2, 3];

/// Returns the path of a file that the example ships.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("three_hosts").join(name)
}

/// Writes an authority, and certificates of the three members, into this directory.
fn certify(dir: &Path) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(dir.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    for id in IDS {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![format!("spindle-member-{id}")]).unwrap();
        fs::write(dir.join(format!("member-{id}.pem")), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(dir.join(format!("member-{id}.key")), key.serialize_pem()).unwrap();
    }
}

/// Three hosts, whose files are in one directory.
struct Hosts {
    scratch: Scratch,
    /// An address and port for each host, by id.
    addresses: Vec<(u64, String)>,
}

impl Hosts {
    fn new(name: &str) -> Hosts {
        // No other process gets these ports for a while.
        let listen = |id: u64| TcpListener::bind(format!("127.0.0.{id}:0")).unwrap().local_addr().unwrap();
        let addresses = IDS.map(|id| (id, listen(id).to_string())).into();
        let hosts = Hosts { scratch: Scratch::new(name), addresses };
        for id in IDS {
            fs::write(hosts.path(&format!("member-{id}.toml")), hosts.settings(id)).unwrap();
        }
        hosts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }

    /// Returns the shipped settings of this member, with the addresses of this test.
    fn settings(&self, id: u64) -> String {
        let text = fs::read_to_string(shipped(&format!("member-{id}.toml"))).unwrap();
        let address = |text: String, (id, address): &(u64, String)| {
            let before = format!("10.0.0.{id}:7411");
            assert!(text.contains(&before), "{text}");
            text.replace(&before, address)
        };
        self.addresses.iter().fold(text, address)
    }

    /// Starts a member on this host.
    fn start(&self, host: u64, settings: &str) -> Terminal {
        let mut command = Command::new(env!("CARGO_BIN_EXE_three_hosts"));
        command.arg(self.path(settings)).env("SPINDLE_RUNTIME_DIR", self.path(&format!("host-{host}")));
        // No test waits for the end of a silence, and on a busy machine a member may be silent.
        command.env("SPINDLE_GROUP_SUSPECT_AFTER", "10s");
        Terminal::start_with_errors(command)
    }

    fn start_all(&self) -> Vec<Terminal> {
        let mut members: Vec<_> = IDS.iter().map(|id| self.start(*id, &format!("member-{id}.toml"))).collect();
        members.iter_mut().for_each(|member| member.wait_for_line("* members 1, 2, 3"));
        members
    }
}

fn delivered(member: &Terminal) -> impl Iterator<Item = &String> {
    member.lines.iter().filter(|line| line.contains(": line "))
}

#[test]
fn hosts_agree_and_two_of_them_continue_until_the_third_is_back() {
    let hosts = Hosts::new("three-hosts");
    certify(&hosts.scratch.0);
    let mut members = hosts.start_all();
    for i in 0..20 {
        members.iter_mut().for_each(|member| member.write(&format!("line {i}")));
    }
    for member in &mut members {
        while delivered(member).count() < 60 {
            member.wait_for("line of a member", |line| line.contains(": line "));
        }
    }
    assert!(delivered(&members[0]).eq(delivered(&members[1])), "{:?}", members[1].lines);
    assert!(delivered(&members[0]).eq(delivered(&members[2])), "{:?}", members[2].lines);

    members[2].signal(Signal::KILL);
    assert!(!members[2].wait_for_end().success());
    members[..2].iter_mut().for_each(|member| member.wait_for_line("* members 1, 2"));
    members[0].write("two");
    members[..2].iter_mut().for_each(|member| member.wait_for_line("1: two"));

    // A service manager starts it again: with the same id, as its certificate says.
    members[2] = hosts.start(3, "member-3.toml");
    members.iter_mut().for_each(|member| member.wait_for_line("* members 1, 2, 3"));
    members[2].write("three");
    members.iter_mut().for_each(|member| member.wait_for_line("3: three"));

    members[0].signal(Signal::TERM);
    assert!(members[0].wait_for_end().success());
    members[1..].iter_mut().for_each(|member| member.wait_for_line("* members 2, 3"));
    for member in &mut members[1..] {
        member.end_input();
        assert!(member.wait_for_end().success());
    }
}

/// The other two hosts might continue without this one, so it delivers nothing, and says so.
#[test]
fn one_host_of_three_is_blocked() {
    let hosts = Hosts::new("three-hosts-blocked");
    certify(&hosts.scratch.0);
    let mut members = hosts.start_all();
    // Both end at the same time. After one end alone, two members could agree to continue.
    members[1..].iter().for_each(|member| member.signal(Signal::STOP));
    members[1..].iter().for_each(|member| member.signal(Signal::KILL));
    members[0].wait_for("report", |line| line.starts_with("* blocked"));
}

#[test]
fn a_certificate_is_good_for_its_own_member_and_group_only() {
    let hosts = Hosts::new("three-hosts-certificates");
    certify(&hosts.scratch.0);
    let text = hosts.settings(3).replace("member-3.", "member-2.");
    fs::write(hosts.path("wrong.toml"), text).unwrap();
    let mut wrong = hosts.start(3, "wrong.toml");
    assert!(!wrong.wait_for_end().success());
    assert!(wrong.lines.iter().any(|line| line.contains("spindle-member-3")), "{:?}", wrong.lines);

    let mut members: Vec<_> = IDS[..2].iter().map(|id| hosts.start(*id, &format!("member-{id}.toml"))).collect();
    // Another authority, in another directory with the same settings.
    let others = hosts.path("others");
    fs::create_dir(&others).unwrap();
    certify(&others);
    fs::write(others.join("member-3.toml"), hosts.settings(3)).unwrap();
    let mut outsider = hosts.start(3, "others/member-3.toml");
    outsider.wait_for("reason", |line| line.contains("certificate"));
    outsider.signal(Signal::TERM);
    assert!(outsider.wait_for_end().success());
    assert!(!outsider.lines.iter().any(|line| line.starts_with("* members")), "{:?}", outsider.lines);

    members.push(hosts.start(3, "member-3.toml"));
    members.iter_mut().for_each(|member| member.wait_for_line("* members 1, 2, 3"));
}

#[test]
fn the_script_makes_certificates_that_fit_the_settings() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("openssl is not installed, and the script is not tried");
        return;
    }
    let hosts = Hosts::new("three-hosts-script");
    let made = Command::new("sh").arg(shipped("certificates.sh")).current_dir(&hosts.scratch.0).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for mut member in hosts.start_all() {
        member.end_input();
        assert!(member.wait_for_end().success());
    }
}
