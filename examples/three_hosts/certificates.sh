#!/bin/sh
# Makes an authority, and a certificate for each of the members 1 to 3, in the current directory.
# Needs OpenSSL. ca.key signs certificates: keep it off the hosts.
set -eu
umask 077
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -days 3650 -subj /CN=three-hosts -keyout ca.key -out ca.pem
for id in 1 2 3; do
    printf 'subjectAltName=DNS:spindle-member-%s\n' "$id" > names
    openssl req $key -subj "/CN=member-$id" -keyout "member-$id.key" -out request
    openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
        -extfile names -out "member-$id.pem"
done
rm names request
