"""One file for each platform, behind the protocol of `steno.gateway.channels.protocol`."""
