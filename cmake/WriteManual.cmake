# Writes what PROGRAM prints about itself below SHARE.
function(wgrad_print file)
  get_filename_component(folder ${SHARE}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${SHARE}/${file}
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

wgrad_print(man/man1/wgrad.1 manual)
wgrad_print(bash-completion/completions/wgrad completion bash)
wgrad_print(zsh/site-functions/_wgrad completion zsh)
wgrad_print(fish/vendor_completions.d/wgrad.fish completion fish)
