//! A controller and its standby: the strongest one that lives sets the valve, and all valves agree who that is.
//!
//! Run `cargo run -p spindle-examples --bin standby -- control 20` in one terminal, the same with `10` in another, and
//! `… -- valve` in two more. Kill the stronger controller: both valves name the other one from the same position on.
//! Ctrl-C leaves.
use anyhow::Result;
use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use spindle_dds::qos::DomainParticipantQos;
use spindle_dds::{DataReader, DataWriter, DdsDuration, DdsError, DdsType, DomainConfig, DomainParticipant};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A controller and its standby, and the valves that they set.
#[derive(Parser)]
struct Arguments {
    /// The number of the domain.
    #[arg(long, default_value_t = 0)]
    domain: u32,
    /// The directory where the participants meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Sets the valve ten times a second.
    Control {
        /// The strongest controller is the owner of the valve.
        strength: i32,
    },
    /// Prints each change of the controller.
    Valve,
}

/// The position that a controller wants.
#[derive(DdsType, Debug)]
#[dds(final)]
struct Setting {
    #[dds(key)]
    valve: u32,
    controller: i32,
    percent: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let config = DomainConfig { runtime_dir: arguments.runtime_dir, ..DomainConfig::new(arguments.domain) };
    let participant = DomainParticipant::with(config, DomainParticipantQos::default())?;
    let ends = Arc::new(AtomicBool::new(false));
    let (flag, mut signals) = (Arc::clone(&ends), Signals::new([SIGINT, SIGTERM])?);
    thread::spawn(move || signals.forever().next().map(|_| flag.store(true, Ordering::Relaxed)));
    match arguments.role {
        Role::Control { strength } => control(&control_writer(&participant, strength)?, strength, &ends)?,
        Role::Valve => follow(&valve_reader(&participant)?, &ends)?,
    }
    Ok(participant.close()?)
}

fn control_writer(participant: &DomainParticipant, strength: i32) -> Result<DataWriter<Setting>, DdsError> {
    participant.topic("settings").reliable().exclusive(strength).writer()
}

fn valve_reader(participant: &DomainParticipant) -> Result<DataReader<Setting>, DdsError> {
    participant.topic("settings").reliable().exclusive(0).keep_all().reader()
}

/// Writes, whether it is the owner or not: the valves ignore the weaker controller.
fn control(writer: &DataWriter<Setting>, controller: i32, ends: &AtomicBool) -> Result<(), DdsError> {
    println!("controller {controller} sets valve 1");
    for percent in (0..=100).cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        writer.write(&Setting { valve: 1, controller, percent })?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Prints who sets the valve, and the position in the order at which that changed.
fn follow(reader: &DataReader<Setting>, ends: &AtomicBool) -> Result<(), DdsError> {
    println!("the valve waits for a controller");
    let mut owner = None;
    while !ends.load(Ordering::Relaxed) {
        match reader.take_next_timeout(DdsDuration::from_millis(200)) {
            Ok(sample) => match sample.data()? {
                Some(Setting { controller, .. }) if owner != Some(controller) => {
                    owner = Some(controller);
                    println!("controller {controller} sets the valve from position {} on", sample.info().position);
                }
                Some(_) => {}
                None => println!("the valve has no controller at position {}", sample.info().position),
            },
            Err(DdsError::Timeout { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
