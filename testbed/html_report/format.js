// Numbers as a reader wants them, always with their unit.

const seconds = (ms) => (ms === null ? '–' : ms < 100 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(2)} s`);
const plainSeconds = (s) => `${Number(s.toPrecision(12))} s`;
const percent = (share) => `${Math.round(100 * share)}%`;
const megabytes = (bytes) => (bytes < 1e5 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(2)} MB`);
const mbps = (rate) => `${rate.toFixed(1)} Mbit/s`;
const words = (name) => name.replaceAll('_', ' ');
const orDash = (value, write) => (value === null || value === undefined ? '–' : write(value));
